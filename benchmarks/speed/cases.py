"""What is measured, as plain data: a case is one piece of work; the cases of a group are compared."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

Work = Literal["update", "rollout", "coefficients", "capped coefficients", "matmul"]
Loop = Literal["sgno", "trainax", "torch", "solver"]

PAPER_POINTS = {1: (160,), 2: (64, 64), 3: (32, 32, 32)}
BASELINES = ("conv", "res", "unet", "dil", "fno")
SOLVER_TASKS = {1: "ks1d", 2: "kolm2d", 3: "advdiff3d"}
# A rollout is a chain of equal steps, so slow grids time the first few of the 200 and scale up.
ROLLOUT_STEPS = 200
TIMED_STEPS = {1: 200, 2: 20, 3: 4}


@dataclasses.dataclass(frozen=True)
class Case:
    """One piece of work that a fresh process repeats.

    **Arguments:**

    - `label`: the subject's name within its group.
    - `work`: one training update, a rollout, the coefficients of the weights alone (with their gradient),
        or a large matrix product.
    - `loop`: who runs it: this package, APEBench's trainer, PyTorch, or the reference solver.
    - `model`: a model's name; for `loop="torch"` how pointwise maps are written; for the solver a task.
    - `points`: the grid.
    - `batch`: states in a batch.
    - `timed_steps`: steps of a rollout per repeat.
    - `settings`: settings of the model that differ from the registry's.
    """

    label: str
    work: Work
    loop: Loop
    model: str
    points: tuple[int, ...]
    batch: int = 20
    timed_steps: int = 1
    settings: tuple[tuple[str, int], ...] = ()

    @property
    def num_spatial_dims(self) -> int:
        return len(self.points)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "points": list(self.points), "settings": dict(self.settings)}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Case":
        settings = tuple(sorted(content["settings"].items()))
        # Earlier measurements also say how many networks were trained together: one.
        content = {name: value for name, value in content.items() if name != "seeds"}
        return Case(**{**content, "points": tuple(content["points"]), "settings": settings})


@dataclasses.dataclass(frozen=True)
class Group:
    """Cases measured in turn, so that a drift of the machine touches all of them alike.

    `memory` measures their peaks too, each in a further process.
    """

    name: str
    cases: tuple[Case, ...]
    repeats: int = 5
    seconds: float = 30.0
    memory: bool = False


def full() -> tuple[Group, ...]:
    """Everything, at the paper's sizes."""
    groups = [Group("matmul", (Case("matrix product", "matmul", "sgno", "", (2048,)),))]
    for d, points in PAPER_POINTS.items():
        updates = (*sgno_and_torch("update", points, 20), *coefficients(points))
        groups.append(Group(f"update-{d}d", updates, memory=True))
        others = [Case("solver", "rollout", "solver", SOLVER_TASKS[d], points, 30, TIMED_STEPS[d])]
        others += [Case(net, "rollout", "sgno", net, points, 30, TIMED_STEPS[d]) for net in BASELINES]
        rollouts = (*sgno_and_torch("rollout", points, 30), *others)
        groups.append(Group(f"rollout-{d}d", rollouts, memory=True))
    for d, points in PAPER_POINTS.items():
        # What a user waits for: imports apart, everything until the first update is done.
        first = (
            Case("sgno", "update", "sgno", "sgno", points),
            Case("fno", "update", "trainax", "fno", points),
        )
        groups.append(Group(f"first-{d}d", first, repeats=1, seconds=1.0))
        # Ten seconds an update of 20 states in 3D would take an hour for a ratio.
        batch = 20 if d < 3 else 4
        groups += [
            Group(f"update-{d}d-{net}", _two_loops(net, points, batch), repeats=3, seconds=10.0)
            for net in BASELINES
        ]
    return (*groups, *scaling())


def sgno_and_torch(work: Work, points: tuple[int, ...], batch: int, **fields: Any) -> tuple[Case, ...]:
    """SGNO here, and both PyTorch implementations of it, which differ in their pointwise maps.

    Plain: 1x1 convolutions, as Fourier neural operators are usually written. Tuned: batched matrix products.
    """
    steps = TIMED_STEPS[len(points)] if work == "rollout" else 1
    subjects = (
        ("sgno", "sgno", "sgno"),
        ("torch, plain", "torch", "convolution"),
        ("torch, tuned", "torch", "product"),
    )
    return tuple(
        Case(label, work, loop, model, points, batch, steps, **fields)  # pyright: ignore[reportArgumentType]
        for label, loop, model in subjects
    )


def coefficients(points: tuple[int, ...], **fields: Any) -> tuple[Case, ...]:
    """What depends on the weights alone: as training starts, and where every mixer exceeds its cap."""
    works: tuple[Work, ...] = ("coefficients", "capped coefficients")
    return tuple(Case(work, work, "sgno", "sgno", points, **fields) for work in works)


def _two_loops(net: str, points: tuple[int, ...], batch: int) -> tuple[Case, ...]:
    return (
        Case("our loop", "update", "sgno", net, points, batch),
        Case("APEBench's trainer", "update", "trainax", net, points, batch),
    )


def scaling() -> tuple[Group, ...]:
    """Time of an SGNO update against points and modes."""
    grids = {1: [64, 256, 1024, 4096], 2: [32, 64, 128, 512], 3: [16, 32, 64]}
    modes = {1: [8, 26, 80], 2: [4, 10, 32], 3: [3, 6, 16]}
    groups = []
    for d, sizes in grids.items():
        cases = [Case(str(n), "update", "sgno", "sgno", (n,) * d) for n in sizes]
        groups.append(Group(f"points-{d}d", tuple(cases), repeats=2, seconds=5.0))
    for d, counts in modes.items():
        cases = [
            Case(str(m), "update", "sgno", "sgno", PAPER_POINTS[d], settings=(("num_modes", m),))
            for m in counts
        ]
        groups.append(Group(f"modes-{d}d", tuple(cases), repeats=2, seconds=5.0))
    return tuple(groups)


def quick() -> tuple[Group, ...]:
    """A smoke run: every kind of work once, on sizes that say nothing."""
    small = (("num_blocks", 1), ("num_modes", 3), ("width", 2))
    points = (32,)
    fno = "FNO;2;2;1;gelu"
    solver = Case("solver", "rollout", "solver", "ks1d", points, 3, 2)
    return (
        Group("matmul", (Case("matrix product", "matmul", "sgno", "", (128,)),), 2),
        Group(
            "update-1d",
            (*sgno_and_torch("update", points, 4, settings=small), *coefficients(points, settings=small)),
            2,
            memory=True,
        ),
        Group("rollout-1d", (*sgno_and_torch("rollout", points, 3, settings=small)[:2], solver), 2),
        Group(
            "update-1d-fno",
            (
                Case("our loop", "update", "sgno", fno, points, 4),
                Case("APEBench's trainer", "update", "trainax", fno, points, 4),
            ),
            2,
        ),
    )
