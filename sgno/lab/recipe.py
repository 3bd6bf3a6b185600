"""The paper's training protocol as plain settings, and how `train` is called by it."""

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import optax
from jaxtyping import Array, PRNGKeyArray

from sgno.config import ModelConfig
from sgno.errors import InputError, unknown_name
from sgno.io.plain import decode
from sgno.io.source import Source
from sgno.io.split import excerpt
from sgno.step import Step
from sgno.training import TrainResult, default_optimizer, train
from sgno.training.loop import Precision, default_warmup

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """One-step MSE, Adam, 10,000 updates of batch 20, linear warm-up over 2,000 to 1e-3, cosine to 0.

    - `warmup` is a fifth of the updates, at most 2,000, unless given.
    - `loss="increment"` divides the MSE by the mean square of `u+ - u` over the training data,
      which makes rates comparable across tasks.
    - `unroll`, `pushforward`, `noise`, `precision`: as `sgno.train` takes them.
    """

    updates: int = 10_000
    batch_size: int = 20
    peak_rate: float = 1e-3
    warmup: int | None = None
    loss: Literal["mse", "increment"] = "mse"
    unroll: int = 1
    pushforward: bool = False
    noise: float = 0.0
    precision: Precision = "float32"

    def __post_init__(self):
        if self.warmup is None:
            object.__setattr__(self, "warmup", default_warmup(self.updates))
        for name, least in (("updates", 0), ("batch_size", 1), ("warmup", 0), ("unroll", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name}={getattr(self, name)} must be at least {least}.")
        if not 0 < self.peak_rate < float("inf"):
            raise InputError(f"peak_rate={self.peak_rate} must be positive and finite.")
        if not 0 <= self.noise < float("inf"):
            raise InputError(f"noise={self.noise} must be zero or positive.")
        for name, known in (("loss", ("mse", "increment")), ("precision", get_args(Precision))):
            if getattr(self, name) not in known:
                raise unknown_name(name, str(getattr(self, name)), known)

    @staticmethod
    def for_model(model: ModelConfig, **options: Any) -> "TrainConfig":
        """The settings that the model asks for, overridden by the options that are not None."""
        asked = model.recipe()
        chosen = {**asked, **{name: value for name, value in options.items() if value is not None}}
        # A model fitted in closed form takes no updates, whatever the others take.
        if asked.get("updates") == 0:
            chosen["updates"] = 0
        # The model's warm-up is meant for the whole protocol: a shorter run keeps its share instead.
        if options.get("warmup") is None and chosen.get("warmup", 0) >= chosen.get("updates", 10_000):
            chosen.pop("warmup", None)
        return TrainConfig(**chosen)

    def optimizer(self, trajectories: Array | np.ndarray | Source) -> optax.GradientTransformation:
        """Adam by these settings. The increment loss is the MSE with scaled gradients."""
        if self.updates and (self.warmup or 0) >= self.updates:
            _log.warning(
                "The warm-up of %d updates does not end within the %d updates of this training, so the rate "
                "never reaches its peak of %g. Use a shorter warm-up.",
                self.warmup,
                self.updates,
                self.peak_rate,
            )
        adam = default_optimizer(self.updates, peak_rate=self.peak_rate, warmup=self.warmup)
        if self.loss == "mse":
            return adam
        return optax.chain(optax.scale(_inverse_increment(excerpt(trajectories))), adam)

    def train(
        self, step: Step, trajectories: Array | np.ndarray | Source, *, key: PRNGKeyArray, **options: Any
    ) -> TrainResult:
        """`sgno.train` by these settings, from a step that is started already."""
        options.setdefault("optimizer", self.optimizer(trajectories))
        return train(
            step,
            trajectories,
            updates=self.updates,
            batch_size=self.batch_size,
            unroll=self.unroll,
            pushforward=self.pushforward,
            noise=self.noise,
            precision=self.precision,
            warm_start=False,
            key=key,
            **options,
        )

    def to_json(self) -> dict[str, Any]:
        # There is one optimiser, and it was always written: the ids of jobs are made of this.
        return {**dataclasses.asdict(self), "optimizer": "adam"}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "TrainConfig":
        if isinstance(content, Mapping):
            content = dict(content)
            if (optimizer := content.pop("optimizer", "adam")) != "adam":
                raise unknown_name("optimizer", str(optimizer)[:100], ["adam"])
        return decode(TrainConfig, content, "a training")


def _inverse_increment(trajectories: Array | np.ndarray) -> float:
    """1 / mean square of `u+ - u`."""
    squares = [np.square(np.diff(np.asarray(one), axis=0), dtype=np.float64).mean() for one in trajectories]
    return float(1 / max(np.mean(squares), np.finfo(np.float32).tiny))
