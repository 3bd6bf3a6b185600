"""A task as plain data: an APEBench scenario with its settings."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from sgno.errors import InputError
from sgno.io.plain import decode

# 256 GB in float32: data that is made at once must fit into memory.
_MOST_NUMBERS = 2**36


@dataclasses.dataclass(frozen=True)
class Task:
    """Which trajectories to learn from and to be tested on.

    `scenario` is a key of APEBench's `scenario_dict`; `settings` are keyword settings of that
    scenario beyond the ones named here, as sorted pairs.
    """

    name: str
    scenario: str
    num_spatial_dims: int
    num_points: int = 160
    num_train_samples: int = 50
    train_steps: int = 50
    train_seed: int = 0
    num_test_samples: int = 30
    test_steps: int = 200
    test_seed: int = 773
    settings: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self):
        for field in ("num_points", "num_train_samples", "train_steps", "num_test_samples", "test_steps"):
            if getattr(self, field) < 1:
                raise InputError(f"{field}={getattr(self, field)} must be at least 1.")
        if self.num_spatial_dims not in (1, 2, 3):
            raise InputError(f"num_spatial_dims={self.num_spatial_dims} must be 1, 2 or 3.")
        states = self.num_train_samples * self.train_steps + self.num_test_samples * self.test_steps
        if states * self.num_points**self.num_spatial_dims > _MOST_NUMBERS:
            raise InputError(
                f"{states:,} states of {self.num_points} points along {self.num_spatial_dims} axes are more "
                f"than {_MOST_NUMBERS:,} numbers. Use fewer points, samples or steps."
            )

    def with_options(self, **options: Any) -> "Task":
        """A copy with the options that are not None replaced."""
        return dataclasses.replace(self, **{k: v for k, v in options.items() if v is not None})

    def data_settings(self) -> dict[str, Any]:
        """All that decides the data, without the name: what its id is made of."""
        settings = dataclasses.asdict(self)
        del settings["name"]
        settings["settings"] = {key: _plain(value) for key, value in self.settings}
        return settings

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **self.data_settings()}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Task":
        if not isinstance(content, Mapping):
            raise InputError(f"The settings of a task are a {type(content).__name__}, not an object.")
        settings = content.get("settings", {})
        if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
            raise InputError("The setting 'settings' of a task must be an object with names.")
        return decode(Task, {**content, "settings": freeze(settings)}, "a task")


def freeze(settings: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Keyword settings as sorted, hashable pairs."""
    return tuple(sorted((key, _hashable(value)) for key, value in settings.items()))


def _hashable(value: Any) -> Any:
    return tuple(_hashable(v) for v in value) if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
