"""sgno: surrogates of time-dependent PDEs that stay accurate and finite.

The public names are loaded when first used, so that importing the package is instant.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgno.count import count_parameters as count_parameters
    from sgno.engine import rollout as rollout
    from sgno.engine import stream as stream
    from sgno.grid import Grid as Grid
    from sgno.lab.apebench import register_apebench as register_apebench
    from sgno.lab.data import load_trajectories as load_trajectories
    from sgno.lab.fit import Fit as Fit
    from sgno.lab.fit import fit as fit
    from sgno.lab.tasks import Task as Task
    from sgno.lab.tasks import get_task as get_task
    from sgno.lab.zoo import load as load
    from sgno.nn.cno import CNO as CNO
    from sgno.nn.linear import Linear as Linear
    from sgno.nn.sgno import SGNO as SGNO
    from sgno.nn.sgno import SGNOConfig as SGNOConfig
    from sgno.registry import get_model as get_model
    from sgno.registry import register_model as register_model
    from sgno.sgno_x.step import SGNOX as SGNOX
    from sgno.solve import Evaluation as Evaluation
    from sgno.solve import Monitor as Monitor
    from sgno.solve import evaluate as evaluate
    from sgno.solve import reference_statistics as reference_statistics
    from sgno.training import TrainResult as TrainResult
    from sgno.training import train as train
    from sgno.weights import save as save

__version__ = "0.1.0"

_HOME = {
    "CNO": "sgno.nn.cno",
    "Evaluation": "sgno.solve",
    "Fit": "sgno.lab.fit",
    "Grid": "sgno.grid",
    "Linear": "sgno.nn.linear",
    "Monitor": "sgno.solve",
    "SGNO": "sgno.nn.sgno",
    "SGNOConfig": "sgno.nn.sgno",
    "SGNOX": "sgno.sgno_x.step",
    "Task": "sgno.lab.tasks",
    "TrainResult": "sgno.training",
    "count_parameters": "sgno.count",
    "evaluate": "sgno.solve",
    "fit": "sgno.lab.fit",
    "get_model": "sgno.registry",
    "get_task": "sgno.lab.tasks",
    "load": "sgno.lab.zoo",
    "load_trajectories": "sgno.lab.data",
    "reference_statistics": "sgno.solve",
    "register_model": "sgno.registry",
    "register_apebench": "sgno.lab.apebench",
    "rollout": "sgno.engine",
    "save": "sgno.weights",
    "stream": "sgno.engine",
    "train": "sgno.training",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sgno' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
