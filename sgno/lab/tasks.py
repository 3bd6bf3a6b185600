"""The ten tasks of the paper and any other APEBench scenario, as plain data."""

import ast
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from sgno.errors import InputError, require, unknown_name
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


class TaskCard(NamedTuple):
    """What a reader wants to know of a task before its numbers."""

    regime: str
    mechanism: str
    equation: str


_3D: dict[str, Any] = {"num_spatial_dims": 3, "num_points": 32, "num_test_samples": 10}

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("adv1d", "diff_adv", 1),
        Task("diff1d", "diff_diff", 1),
        Task("disp1d", "diff_disp", 1),
        Task("kdv1d", "diff_kdv", 1),
        Task("ks1d", "diff_ks", 1),
        Task("mixdisp2d", "phy_mix_disp", 2),
        Task("kolm2d", "phy_kolm_flow", 2, num_points=64),
        Task(
            "diagdiff3d",
            "phy_diag_diff",
            **_3D,
            settings=(("diffusion_coef_vector", (0.001, 0.002, 0.0004)),),
        ),
        Task("unbaladv3d", "phy_unbal_adv", **_3D),
        Task("advdiff3d", "diff_adv_diff", **_3D),
    )
}

CARDS: dict[str, TaskCard] = {
    "adv1d": TaskCard("Transport", "phase propagation", "u_t = -c u_x"),
    "diff1d": TaskCard("Dissipative", "damping", "u_t = ν u_xx"),
    "disp1d": TaskCard("Dispersive", "phase propagation", "u_t = ξ u_xxx"),
    "kdv1d": TaskCard("Semilinear", "nonlinear closure", "u_t = -b/2 (u²)_x + ξ u_xxx - ζ u_xxxx"),
    "ks1d": TaskCard("Semilinear", "mode coupling", "u_t = -b/2 (u_x)² - ν u_xx - ζ u_xxxx"),
    "mixdisp2d": TaskCard("Dispersive", "mixed phase", "u_t = ξ 1·∇(Δu)"),
    "kolm2d": TaskCard("Semilinear", "forced flow", "ω_t = -u·∇ω + ν Δω + λ ω + f"),
    "diagdiff3d": TaskCard("Dissipative", "3D damping", "u_t = ∇·(ν ⊙ ∇u)"),
    "unbaladv3d": TaskCard("Transport", "phase drift", "u_t = -c·∇u"),
    "advdiff3d": TaskCard("Mixed", "phase and damping", "u_t = -c 1·∇u + ν Δu"),
}

APEBENCH_PREFIX = "apebench:"


def get_task(name: str) -> Task:
    """A task by name, or any APEBench scenario as `apebench:NAME;key=value;...`.

    **Raises:** `InputError` for an unknown task, scenario or setting, listing the known ones.
    """
    if name.startswith(APEBENCH_PREFIX):
        return _apebench_task(name)
    if name not in TASKS:
        raise unknown_name("task", name, [*TASKS, "apebench:NAME;key=value"])
    return TASKS[name]


_OWN_FIELDS = {
    "num_spatial_dims": "num_spatial_dims",
    "num_points": "num_points",
    "num_train_samples": "num_train_samples",
    "train_temporal_horizon": "train_steps",
    "train_seed": "train_seed",
    "num_test_samples": "num_test_samples",
    "test_temporal_horizon": "test_steps",
    "test_seed": "test_seed",
}


def _apebench_task(name: str) -> Task:
    apebench = require("apebench", "paper", f"The task {name}")

    scenario, *pairs = name.removeprefix(APEBENCH_PREFIX).split(";")
    scenarios = apebench.scenarios.scenario_dict
    if scenario not in scenarios:
        raise unknown_name("APEBench scenario", scenario, scenarios)
    known = scenarios[scenario].__dataclass_fields__
    own, settings = {}, {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator:
            raise InputError(f"'{pair}' in '{name}' is not key=value.")
        if key not in known:
            raise unknown_name(f"setting of APEBench scenario {scenario}", key, known)
        if key in settings or _OWN_FIELDS.get(key) in own:
            raise InputError(f"'{name}' sets {key} twice. Leave one of them out.")
        value = _literal(text)
        if key in _OWN_FIELDS:
            if type(value) is not int:
                raise InputError(f"'{pair}' in '{name}' does not fit: {key} takes a whole number.")
            own[_OWN_FIELDS[key]] = value
        else:
            settings[key] = value
    for key, field in _OWN_FIELDS.items():
        own.setdefault(field, known[key].default)
    try:
        return Task(name=name, scenario=scenario, settings=freeze(settings), **own)
    except TypeError as error:
        raise InputError(f"'{name}' has a setting of the wrong type: {error}.") from error


def _literal(text: str):
    """A Python literal (number, tuple, true/false), or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
