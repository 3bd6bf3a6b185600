"""The page of the Python API: every public name, its text from its docstring."""

import importlib

import sgno

_HEAD = """# Python API

Every public name of the package. They are loaded when first used, so `import sgno` is instant. Each is an
Equinox module, a frozen dataclass or a function; `key` is always a keyword. Shapes are written as jaxtyping
writes them.
"""
_GROUPS = {
    "Load, run and score": ("load", "save", "rollout", "stream", "evaluate", "Evaluation"),
    "Your own data": ("fit", "Fit"),
    "The equation behind data": ("discover", "Discovery", "EquationStep"),
    "Watching rollouts": ("Observer", "Observed", "Block", "Monitor", "reference_statistics"),
    "Tasks and data": ("get_task", "Task", "load_trajectories"),
    "Models": (
        "get_model",
        "register_model",
        "ModelConfig",
        "Grid",
        "SGNO",
        "SGNOConfig",
        "SGNOX",
        "SGNOXConfig",
        "Linear",
        "LinearConfig",
        "CNO",
        "CNOConfig",
        "ApebenchConfig",
        "Normalised",
        "NormalisedConfig",
        "count_parameters",
    ),
    "Training": ("train", "TrainResult", "warm_start"),
    "Speed": ("prepare", "batch"),
    "Errors": ("InputError",),
    "APEBench": ("register_apebench",),
}
_REST = "Further names"


def page() -> str:
    """All names of `sgno.__all__` by group; one that no group has is listed last, never left out."""
    grouped = {name for names in _GROUPS.values() for name in names}
    groups = {**_GROUPS, _REST: tuple(name for name in sgno.__all__ if name not in grouped)}
    lines = [_HEAD]
    for title, names in groups.items():
        present = [name for name in names if name in sgno.__all__]
        if present:
            lines += [f"## {title}", "", *(_entry(name) for name in present)]
    return "\n".join(lines)


def _entry(name: str) -> str:
    home = _home(name)
    return f"::: {home}.{name}\n    options:\n      heading: sgno.{name}\n      toc_label: {name}\n"


def _home(name: str) -> str:
    """The module that defines a name: a reader of source files cannot follow names that are loaded late."""
    return getattr(importlib.import_module("sgno"), name).__module__
