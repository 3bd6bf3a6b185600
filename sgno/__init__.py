"""sgno: surrogates of time-dependent PDEs that stay accurate and finite.

The public names are loaded when first used, so that importing the package is instant.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgno.data import load_trajectories as load_trajectories
    from sgno.evaluation import Evaluation as Evaluation
    from sgno.evaluation import Monitor as Monitor
    from sgno.evaluation import evaluate as evaluate
    from sgno.evaluation import reference_statistics as reference_statistics
    from sgno.evaluation import rollout as rollout
    from sgno.models.apebench_register import register_apebench as register_apebench
    from sgno.models.cno import CNO as CNO
    from sgno.models.count import count_parameters as count_parameters
    from sgno.models.linear import Linear as Linear
    from sgno.models.registry import get_model as get_model
    from sgno.models.sgno import SGNO as SGNO
    from sgno.models.sgno import SGNOConfig as SGNOConfig
    from sgno.models.sgno_x.step import SGNOX as SGNOX
    from sgno.models.step import AbstractStep as AbstractStep
    from sgno.models.step import Grid as Grid
    from sgno.models.weights import load_weights as load_weights
    from sgno.models.weights import save_weights as save_weights
    from sgno.study.fit import Fit as Fit
    from sgno.study.fit import fit as fit
    from sgno.tasks import Task as Task
    from sgno.tasks import get_task as get_task
    from sgno.training import TrainConfig as TrainConfig
    from sgno.training import train as train
    from sgno.zoo import load as load

__version__ = "0.1.0"

_HOME = {
    "AbstractStep": "sgno.models.step",
    "CNO": "sgno.models.cno",
    "Evaluation": "sgno.evaluation",
    "Fit": "sgno.study.fit",
    "Grid": "sgno.models.step",
    "Linear": "sgno.models.linear",
    "Monitor": "sgno.evaluation",
    "SGNO": "sgno.models.sgno",
    "SGNOConfig": "sgno.models.sgno",
    "SGNOX": "sgno.models.sgno_x.step",
    "Task": "sgno.tasks",
    "TrainConfig": "sgno.training",
    "count_parameters": "sgno.models.count",
    "evaluate": "sgno.evaluation",
    "fit": "sgno.study.fit",
    "get_model": "sgno.models.registry",
    "get_task": "sgno.tasks",
    "load": "sgno.zoo",
    "load_trajectories": "sgno.data",
    "load_weights": "sgno.models.weights",
    "reference_statistics": "sgno.evaluation",
    "register_apebench": "sgno.models.apebench_register",
    "rollout": "sgno.evaluation",
    "save_weights": "sgno.models.weights",
    "train": "sgno.training",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sgno' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
