"""Training settings: the paper's protocol by default."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

import optax

from sgno.config import ModelConfig
from sgno.errors import InputError, unknown_name
from sgno.io.plain import decode

Optimizer = Literal["adam"]
Loss = Literal["mse", "increment"]
Precision = Literal["float32", "float64"]


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """One-step MSE, Adam, 10,000 updates of batch 20, linear warm-up over 2,000 to 1e-3, cosine to 0.

    - `loss="increment"` divides the MSE by the mean square of `u+ - u` over the training data,
      which makes rates comparable across tasks.
    - `unroll` trains through that many steps; `pushforward` cuts the gradient between them;
      `noise` adds Gaussian noise of that fraction of the data's standard deviation to the input.
    """

    updates: int = 10_000
    batch_size: int = 20
    peak_rate: float = 1e-3
    warmup: int = 2_000
    optimizer: Optimizer = "adam"
    loss: Loss = "mse"
    unroll: int = 1
    pushforward: bool = False
    noise: float = 0.0
    precision: Precision = "float32"

    def __post_init__(self):
        for name, least in (("updates", 0), ("batch_size", 1), ("warmup", 0), ("unroll", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name}={getattr(self, name)} must be at least {least}.")
        if not 0 < self.peak_rate < float("inf"):
            raise InputError(f"peak_rate={self.peak_rate} must be positive and finite.")
        if not 0 <= self.noise < float("inf"):
            raise InputError(f"noise={self.noise} must be zero or positive.")
        for name, kind in (("optimizer", Optimizer), ("loss", Loss), ("precision", Precision)):
            if getattr(self, name) not in get_args(kind):
                raise unknown_name(name, str(getattr(self, name)), get_args(kind))

    @staticmethod
    def for_model(model: ModelConfig, **options: Any) -> "TrainConfig":
        """The model's own recipe, overridden by the options that are not None.

        A shorter run than the protocol's keeps its proportion of warm-up.
        """
        chosen = {**model.recipe(), **{k: v for k, v in options.items() if v is not None}}
        # A model fitted in closed form takes no updates, whatever was asked for the others.
        if model.recipe().get("updates") == 0:
            chosen["updates"] = 0
        updates = chosen.get("updates", TrainConfig.updates)
        if "warmup" not in chosen or (chosen["warmup"] >= updates and options.get("warmup") is None):
            chosen["warmup"] = min(TrainConfig.warmup, updates // 5)
        return TrainConfig(**chosen)

    def schedule(self) -> optax.Schedule:
        """Linear from 0 to `peak_rate` over `warmup` updates, then cosine to 0."""
        return optax.warmup_cosine_decay_schedule(
            init_value=0.0,
            peak_value=self.peak_rate,
            warmup_steps=self.warmup,
            decay_steps=max(self.updates, self.warmup + 1),
        )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "TrainConfig":
        return decode(TrainConfig, content, "a training")
