"""A coefficient that varies in space and is not known, found with the equation.

    a(x) = sum_m cosines[m] cos(2 pi m x / L) + sines[m] sin(2 pi m x / L)

makes `a(x) D v` a group of terms that are linear in their coefficients, whose waves are known inputs. So the
same regressions find them; held-out forecasts say whether a field pays, and how many waves it needs.
"""

import math
from dataclasses import replace

import numpy as np

from sgno.identify.equation.search import MAY_LEAVE, NEGLIGIBLE, WORTH_ADDING, Search
from sgno.identify.equation.shooting import Shooting
from sgno.identify.equation.terms import Group, carriers, wave
from sgno.identify.equation.weak import WeakForm

# A field is tried where held-out forecasts are worse than this, and kept where it divides their error by two.
_GOOD = 1e-3
_WORTH_A_FIELD = 0.5
# As many waves along the box.
_WAVES = (4, 8, 16)


def learn_field(search: Search, c: np.ndarray) -> tuple[Search, np.ndarray]:
    """The search continued with one learned field if held-out forecasts ask for one; else as it is.

    In 1D and without noise: with it, the misfit says that a term is missing.
    """
    data = search.everything
    error = search.error(c)
    if data.noisy or data.box.dims > 1 or error < _GOOD:
        return search, c
    library, points = search.terms, data.box.points[0]
    best, found, group = math.inf, None, None
    for modes in (m for m in _WAVES if 4 * m <= points):
        shapes = {
            f"{f.__name__}{m}(x)": wave(m, f, points) for m in range(1, modes + 1) for f in (np.cos, np.sin)
        }
        known = {name: values[None, None] for name, values in shapes.items()}
        inputs = replace(data.inputs, arrays={**data.inputs.arrays, **known})
        extended = replace(data, inputs=inputs)
        if group is None:
            group = _choose(extended, search, list(shapes))
        terms = [*library, *group.members(list(shapes))]
        trial = Search(
            extended,
            terms,
            search.names,
            fixed=False,
            log=search.log,
            group=group,
            group_size=1 + len(shapes),
        )
        coefficients = _fit(trial)
        value = trial.error(coefficients)
        search.log(f"a field times {group} with {modes} waves: held-out error {value:.3g}")
        if not value < WORTH_ADDING * best:
            break
        best, found = value, (trial, coefficients)
    return found if found is not None and best < _WORTH_A_FIELD * error else (search, c)


def _choose(data, search: Search, names: list[str]) -> Group:
    """The group that, beside the library, leaves the smallest residual in weak form."""
    groups = carriers(data.channels)
    terms = [*search.terms, *(t for group in groups for t in group.members(names))]
    weak = WeakForm(data, terms, window=12)
    first, size = len(search.terms), 2 * (len(names) // 2) + 1
    everything = range(first)
    residuals = []
    for i, group in enumerate(groups):
        own = range(first + i * size, first + (i + 1) * size)
        # Of the group's own channel: those of the others are the same for all groups.
        residuals.append(
            weak.residual(group.target, [*everything, *own]) / weak.residual(group.target, everything)
        )
        search.log(f"a field times {group}: leaves {residuals[-1]:.3g} of the residual")
    return groups[int(np.argmin(residuals))]


def _fit(search: Search) -> np.ndarray:
    """Coefficients of the group and of those terms of the library that it does not make superfluous."""
    in_group = search.in_group
    c = WeakForm(search.data, search.terms, window=12).select(always=np.flatnonzero(in_group).tolist())
    for window in [w for w in (1, 4, 12) if w < search.data.frames]:
        shooting = Shooting(search.data, search.terms, window=window, most=max(20, 400 // (window + 1)))
        c = shooting.refine(c, iterations=5)
        small = (search.shares(c) < NEGLIGIBLE) & ~in_group
        if c[small].any():
            c = shooting.refine(np.where(small, 0, c), iterations=3)
    for j in np.flatnonzero(np.where(in_group, 0, c)):
        fewer = shooting.refine(np.where(np.arange(len(c)) == j, 0, c), iterations=2)
        if search.error(fewer) < MAY_LEAVE * search.error(c):
            c = fewer
    return c
