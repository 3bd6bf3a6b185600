"""The rows of the wild suite by name."""

import dataclasses
import difflib

from sgno.errors import InputError
from sgno.lab.wild.periodic import Burgers, KortewegDeVries, KuramotoSivashinsky
from sgno.lab.wild.task import WildTask

NOISE_LEVELS = (1, 5, 20)


def _rows() -> list[WildTask]:
    burgers = WildTask("burgers", "Burgers, periodic, clean", Burgers())
    ks = WildTask("ks", "Kuramoto-Sivashinsky, clean", KuramotoSivashinsky())
    rows = [burgers, WildTask("kdv", "Korteweg-de Vries, clean", KortewegDeVries()), ks]
    for task in (burgers, ks):
        rows += [
            dataclasses.replace(
                task,
                name=f"{task.name}-noise{percent}",
                description=task.description.replace("clean", f"{percent} % noise on the training data"),
                noise=percent / 100,
            )
            for percent in NOISE_LEVELS
        ]
    rows += [
        dataclasses.replace(
            ks, name=f"ks-every{n}", description=f"Kuramoto-Sivashinsky, every {n}th frame", every=n
        )
        for n in (2, 5, 10)
    ]
    rows += [
        dataclasses.replace(
            ks,
            name=f"ks-samples{n}",
            description=f"Kuramoto-Sivashinsky, {n} training {'trajectory' if n == 1 else 'trajectories'}",
            train_samples=n,
        )
        for n in (5, 1)
    ]
    return rows


WILD: dict[str, WildTask] = {row.name: row for row in _rows()}


def get(name: str) -> WildTask:
    """A row of the suite.

    **Raises:** `InputError` if there is no such row.
    """
    if name not in WILD:
        near = difflib.get_close_matches(name, WILD, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InputError(f"There is no wild task '{name}'.{hint} Known: {', '.join(WILD)}.")
    return WILD[name]
