"""The rows of the wild suite by name."""

import dataclasses
import difflib
import math
from collections.abc import Iterator

from sgno.errors import InputError
from sgno.lab.wild.coupled import (
    Brusselator,
    ConservedShallowWater,
    FitzHughNagumo,
    Schroedinger,
    ShallowWater,
    Wave,
)
from sgno.lab.wild.periodic import (
    Burgers,
    Interval,
    KortewegDeVries,
    KuramotoSivashinsky,
    Reaction,
    VaryingAdvection,
    VaryingDiffusion,
)
from sgno.lab.wild.plane import GrayScott, NavierStokes, RayleighBenard, WalledPlaneReaction
from sgno.lab.wild.task import WildTask
from sgno.lab.wild.walls import WalledBurgers, WalledHeat, WalledReaction

NOISE_PERCENT = (1, 5, 20)
_BURGERS = WildTask("burgers", "Burgers, periodic", Burgers())
_KS = WildTask("ks", "Kuramoto-Sivashinsky", KuramotoSivashinsky())


def _sampled() -> Iterator[WildTask]:
    """Clean data, then noise, frames far apart and few trajectories."""
    yield from (_BURGERS, WildTask("kdv", "Korteweg-de Vries", KortewegDeVries()), _KS)
    for task in (_BURGERS, _KS):
        for percent in NOISE_PERCENT:
            description = f"{task.description}, {percent} % noise on the training data"
            name = f"{task.name}-noise{percent}"
            yield dataclasses.replace(task, name=name, description=description, noise=percent / 100)
    for n, ordinal in ((2, "2nd"), (5, "5th"), (10, "10th")):
        description = f"{_KS.description}, every {ordinal} frame"
        yield dataclasses.replace(_KS, name=f"ks-every{n}", description=description, every=n)
    for n, noun in ((5, "trajectories"), (1, "trajectory")):
        description = f"{_KS.description}, {n} training {noun}"
        yield dataclasses.replace(_KS, name=f"ks-samples{n}", description=description, train_samples=n)


def _coupled() -> Iterator[WildTask]:
    yield WildTask("shallow-water", "shallow water (h, u)", ShallowWater())
    yield WildTask("shallow-water-conserved", "shallow water (h, hu)", ConservedShallowWater())
    yield WildTask("fitzhugh-nagumo", "FitzHugh-Nagumo", FitzHughNagumo())
    yield WildTask("brusselator", "Brusselator", Brusselator())
    yield WildTask("schroedinger", "nonlinear Schroedinger, dt 0.05", Schroedinger())
    near = Schroedinger(dt=0.01, box=Interval(2 * math.pi, 128, substeps=8))
    yield WildTask("schroedinger-dt01", "nonlinear Schroedinger, dt 0.01", near)
    sine = Wave("sine", amplitudes=(2.0, 0.3), modes=2, dt=0.2, box=Interval(15.0, 128, substeps=1))
    yield WildTask("sine-gordon", "sine-Gordon (u, u_t)", sine)
    yield WildTask("wave-hidden", "wave equation, only u observed", Wave(hidden=True))
    yield WildTask("saturated-fisher", "diffusion and the reaction u/(1+u)", Reaction("saturated"))
    yield WildTask("exponential-reaction", "diffusion and the reaction exp(-u)", Reaction("exponential"))


def _inputs() -> Iterator[WildTask]:
    """Coefficients that vary, parameters, forces, time steps."""
    fixed, given, random = (
        VaryingAdvection(),
        VaryingAdvection("fixed", given=True),
        VaryingAdvection("random", given=True),
    )
    yield WildTask("advection-unknown", "u_t = -a(x) u_x, a fixed and unknown", fixed)
    yield WildTask("advection-given", "u_t = -a(x) u_x, a fixed and given", given)
    yield WildTask("advection-random", "u_t = -a(x) u_x, a random by trajectory and given", random)
    yield WildTask("diffusion-unknown", "u_t = (D(x) u_x)_x, D fixed and unknown", VaryingDiffusion())
    family = Burgers(viscosities=(0.08, 0.25))
    yield WildTask("burgers-family", "Burgers, viscosity given, unseen ones in the test", family)
    yield WildTask("burgers-controlled", "Burgers with a given force c(t)", Burgers(force="c"))
    yield WildTask("burgers-forced", "Burgers with a given force f(x, t)", Burgers(force="f"))
    mixed = Burgers(dts=(0.025, 0.05, 0.1), box=Interval(2 * math.pi, 256, substeps=16))
    yield WildTask("burgers-mixed-dt", "Burgers, trajectories that differ in dt", mixed)
    for name, factor in (("half", 0.5), ("double", 2.0)):
        test = Burgers(dt=0.05 * factor)
        description = f"Burgers, tested at {name} the time step"
        yield dataclasses.replace(
            _BURGERS, name=f"burgers-{name}-dt", description=description, test_system=test
        )


def _walls_and_scales() -> Iterator[WildTask]:
    yield WildTask("burgers-walls", "Burgers between walls at 0", WalledBurgers())
    yield WildTask("heat-walls", "heat between walls at 0 and 1", WalledHeat())
    yield WildTask("reaction-walls", "reaction-diffusion without flux through the walls", WalledReaction())
    unresolved = Burgers(viscosity=0.02, box=Interval(2 * math.pi, 512, substeps=16, filtered=True))
    yield WildTask("burgers-filtered", "Burgers, 512 points filtered to 64", unresolved)
    wide = KuramotoSivashinsky(box=Interval(100.0, 512, substeps=16, filtered=True))
    yield WildTask("ks-filtered", "Kuramoto-Sivashinsky, 512 points filtered to 64", wide)
    strong = Burgers(amplitude=3.0, box=Interval(2 * math.pi, 512, substeps=32))
    description = "Burgers, tested from 3 times the amplitude"
    yield dataclasses.replace(
        _BURGERS, name="burgers-amplitude3", description=description, test_system=strong
    )


def _plane() -> Iterator[WildTask]:
    rows = (
        ("gray-scott-2d", "Gray-Scott by finite differences, 64 x 64", GrayScott()),
        ("navier-stokes-2d", "Navier-Stokes (vorticity) by a projection method, 64 x 64", NavierStokes()),
        ("reaction-walls-2d", "FitzHugh-Nagumo, no flux through two walls, 64 x 64", WalledPlaneReaction()),
        ("rayleigh-benard-2d", "Rayleigh-Benard convection (T, u, v), 128 x 32", RayleighBenard()),
    )
    for name, description, system in rows:
        yield WildTask(name, description, system, train_samples=20, test_samples=5)


WILD: dict[str, WildTask] = {
    row.name: row
    for rows in (_sampled(), _coupled(), _inputs(), _walls_and_scales(), _plane())
    for row in rows
}


def get(name: str) -> WildTask:
    """A row of the suite.

    **Raises:** `InputError` if there is no such row.
    """
    if name not in WILD:
        near = difflib.get_close_matches(name, WILD, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InputError(f"There is no wild task '{name}'.{hint} Known: {', '.join(WILD)}.")
    return WILD[name]
