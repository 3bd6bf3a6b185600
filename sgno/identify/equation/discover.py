"""From trajectories to the equation behind them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sgno.errors import InputError
from sgno.identify.equation.data import Data
from sgno.identify.equation.discovery import Discovery
from sgno.identify.equation.fields import learn_field
from sgno.identify.equation.flow import Box, Inputs
from sgno.identify.equation.search import Search
from sgno.identify.equation.simulate import as_inputs
from sgno.identify.equation.terms import Term, candidates, channel_names, lengths_of


def discover(
    u: np.ndarray | Sequence[np.ndarray],
    *,
    dt: float | np.ndarray,
    length: float | Sequence[float],
    inputs: Mapping[str, np.ndarray] | None = None,
    holds: Sequence[str] = (),
    channels: Sequence[str] | None = None,
    terms: Sequence[Term] | None = None,
    only: Sequence[Term] | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> Discovery:
    """Find the PDE behind trajectories on a periodic box, with an interval for each coefficient.

    **Arguments:**

    - `u`: `(samples, frames, C, *points)`, or a list of `(frames, C, *points)` of different lengths.
    - `dt`: the time between frames: a number, one for each sample, or `(samples, frames - 1)`.
    - `length`: of the box, a number or one for each axis.
    - `inputs`: known inputs by name: `(samples,)` parameters, `(*points)` or `(samples, *points)` fields,
      `(samples, frames)` and `(samples, frames, *points)` controls.
    - `holds`: inputs that keep the value of a frame until the next one; others are linear in between.
    - `channels`: names of the channels, by default `u, v, w` or `u0, u1, ...`.
    - `terms`: the library of candidates, by default `candidates`.
    - `only`: the terms of the equation, if they are known: then only their coefficients are found.

    **Raises:** `InputError` for arrays that do not fit together, or too few frames.
    """
    states, steps = _trajectories(u, dt)
    samples, frames, count = states.shape[:3]
    points = states.shape[3:]
    box = Box(points, lengths_of(length, len(points)))
    known = Inputs(as_inputs(inputs or {}, samples, frames, points), box, frozenset(holds))
    data = Data.make(states, steps, box, known)
    fields = [n for n in known.arrays if n not in known.parameters and known.arrays[n].shape[2:] == points]
    scalars = [n for n in known.arrays if n not in fields]
    library = list(only or terms or candidates(count, len(points), parameters=scalars, fields=fields))
    names = tuple(channels or channel_names(count))
    if len(names) != count:
        raise InputError(
            f"channels={','.join(names)} are {len(names)} names, but there are {count} channels."
        )
    search = Search(data, library, names, fixed=only is not None, log=log)
    found = search.run()
    if only is None and terms is None:
        search, found = learn_field(search, found)
    return search.conclude(found)


def _trajectories(u, dt) -> tuple[np.ndarray, np.ndarray]:
    """States `(samples, frames, C, *points)` and steps `(samples, frames - 1)`.

    Trajectories of different length are cut into pieces as long as the shortest.
    """
    pieces = [np.asarray(t) for t in u]
    if not pieces or pieces[0].ndim < 3:
        raise InputError(
            "Expected trajectories (samples, frames, channels, *points) with at least one point axis."
        )
    if len({p.shape[1:] for p in pieces}) > 1:
        raise InputError("Trajectories must share their channels and points. Resample them to one grid.")
    if not all(np.isfinite(p).all() for p in pieces):
        raise InputError("The trajectories contain NaN or infinity. Leave out the frames that do.")
    frames = min(len(p) for p in pieces)
    needed = 3 if len(pieces) > 1 else 4
    if frames < needed:
        raise InputError(
            f"{len(pieces)} trajectories of {frames} frames or more, but an equation needs {needed} frames."
        )
    given = np.asarray(dt, float)
    if given.ndim > 2 or (given.ndim and len(given) != len(pieces)) or not (given > 0).all():
        raise InputError(
            f"dt has the shape {given.shape}: give a positive number, (samples,) or (samples, frames - 1)."
        )
    states, steps = [], []
    for i, p in enumerate(pieces):
        own = np.broadcast_to(given if given.ndim == 0 else given[i], (len(p) - 1,))
        for first in sorted({*range(0, len(p) - frames + 1, frames - 1), len(p) - frames}):
            states.append(p[first : first + frames])
            steps.append(own[first : first + frames - 1])
    return np.stack(states), np.stack(steps)
