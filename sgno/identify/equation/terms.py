"""The terms a PDE may have, the library a search starts from, and how an equation is written down.

A term is `∂^outer prod_a ∂^order_a w_a` in the equation of one channel, where every `w_a` is a state channel
(a number) or a known input (a name). `u u_x` and `(u²)_x / 2` are the same function, so the library holds
only one of them.
"""

import itertools
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from sgno.errors import InputError, unknown_name

Order = tuple[int, ...]
_AXES = "xyz"
# Of a derivative. Powers of wavenumbers beyond it overflow single precision on fine grids.
_HIGHEST = 8


@dataclass(frozen=True)
class Factor:
    """`∂^order field`, the field being a state channel (a number) or a known input (a name)."""

    field: int | str
    order: Order

    @property
    def is_state(self) -> bool:
        return isinstance(self.field, int)


@dataclass(frozen=True)
class Term:
    """`∂^outer prod_a factor_a`, added to the rate of the channel `target`. No factors: a constant."""

    target: int
    outer: Order
    factors: tuple[Factor, ...]

    @property
    def degree(self) -> int:
        """How many factors are states: 0 for a forcing, 1 for a linear term."""
        return sum(f.is_state for f in self.factors)


def candidates(
    channels: int,
    dims: int,
    *,
    parameters: Sequence[str] = (),
    fields: Sequence[str] = (),
    max_order: int = 4,
    cubic: bool = True,
) -> list[Term]:
    """The library that a search starts from.

    The equation of every channel is offered a constant; every channel's derivatives up to `max_order`; the
    products of two channels under at most two derivatives or with first derivatives inside; and the plain
    products of three. A known input stands alone as a forcing, and multiplies the linear terms up to second
    order and the products of two channels.

    **Arguments:**

    - `parameters`: names of inputs that do not depend on space, so that derivatives pass through them.
    - `fields`: names of inputs that do.
    - `cubic`: whether to offer products of three channels.
    """
    zero = (0,) * dims
    orders = [
        [o for o in itertools.product(range(n + 1), repeat=dims) if sum(o) == n] for n in range(max_order + 1)
    ]
    first = orders[1]
    second = [o for o in orders[2] if max(o) == 2]
    # Beyond second order only pure and even mixed derivatives, which is what isotropic equations have.
    linear = [
        o for n, some in enumerate(orders) for o in some if n < 3 or max(o) == n or not any(i % 2 for i in o)
    ]
    plain = [Factor(c, zero) for c in range(channels)]
    shapes: list[tuple[Order, tuple[Factor, ...]]] = [(zero, ())]
    shapes += [(zero, (Factor(c, o),)) for c in range(channels) for o in linear]
    for a, b in itertools.combinations_with_replacement(range(channels), 2):
        shapes += [(o, (plain[a], plain[b])) for o in (zero, *first, *second)]
        if a != b:
            shapes += [(zero, (Factor(a, o), plain[b])) for o in first]
        for o, p in itertools.product(first, first):
            if a != b or o <= p:
                shapes.append((zero, (Factor(a, o), Factor(b, p))))
    if cubic:
        shapes += [(zero, three) for three in itertools.combinations_with_replacement(plain, 3)]
        shapes += [(o, (plain[0],) * 3) for o in first if channels == 1]
    for name in (*parameters, *fields):
        known = Factor(name, zero)
        shapes.append((zero, (known,)))
        shapes += [
            (zero, (known, Factor(c, o))) for c in range(channels) for n in range(3) for o in orders[n]
        ]
        pairs = list(itertools.combinations_with_replacement(plain, 2))
        shapes += [(zero, (known, *pair)) for pair in pairs]
        if name in parameters:
            shapes += [(o, (known, *pair)) for o in first for pair in pairs]
        else:
            shapes += [(zero, (Factor(name, o),)) for o in first]
            shapes += [
                (zero, (Factor(name, o), Factor(c, p)))
                for c in range(channels)
                for o in first
                for p in (zero, o)
            ]
    return [Term(c, outer, factors) for c in range(channels) for outer, factors in dict.fromkeys(shapes)]


@dataclass(frozen=True)
class Group:
    """A term that a learned field multiplies: `∂^outer (a(x) prod factors)` in the equation of `target`."""

    target: int
    outer: Order
    factors: tuple[Factor, ...]

    def members(self, waves: Sequence[str]) -> list[Term]:
        """The plain term, and one for each wave that the field is made of."""
        waves_of = [(), *((Factor(name, (0,)),) for name in waves)]
        return [Term(self.target, self.outer, (*w, *self.factors)) for w in waves_of]


def carriers(channels: int) -> list[Group]:
    """In 1D: `f`, `a u`, `a u_x`, `(a u)_x`, `a u_xx` and `(a u_x)_x`, in the equation of every channel."""
    shapes = [((0,), None), ((0,), 0), ((0,), 1), ((1,), 0), ((0,), 2), ((1,), 1)]
    own = lambda c, order: () if order is None else (Factor(c, (order,)),)
    return [Group(c, outer, own(c, order)) for c in range(channels) for outer, order in shapes]


@dataclass(frozen=True)
class LearnedField:
    """`a(x) = sum_m cosines[m] cos(2 pi m x / L) + sines[m] sin(2 pi m x / L)`, found from data."""

    name: str
    cosines: tuple[float, ...]
    sines: tuple[float, ...]

    def values(self, points: int) -> np.ndarray:
        """On a grid of the box."""
        waves = zip(self.cosines, self.sines, strict=True)
        parts = [c * wave(m, np.cos, points) + s * wave(m, np.sin, points) for m, (c, s) in enumerate(waves)]
        return np.sum(parts, axis=0)


def wave(number: int, function: Callable[[np.ndarray], np.ndarray], points: int) -> np.ndarray:
    """`function(2 pi number x / L)` on a grid of the box."""
    return function(2 * np.pi * number * np.arange(points) / points)


@dataclass(frozen=True)
class Equation:
    """`∂_t w_c = sum_j coefficient_j term_j` for every channel, in the user's units of time and length.

    - `max_step`: the longest inner step with which the scheme stays accurate on the data it was found from.
    - `standard_errors`: of the coefficients, where they were found from data.
    - `fields`: coefficients that vary in space (1D), which the terms name like inputs.
    - `conserves_mean`: whether the mean over the box is taken from the rates: a channel keeps its own.
    """

    terms: tuple[Term, ...]
    coefficients: tuple[float, ...]
    channels: tuple[str, ...]
    lengths: tuple[float, ...]
    max_step: float
    standard_errors: tuple[float, ...] = ()
    fields: tuple[LearnedField, ...] = ()
    conserves_mean: bool = False

    def __post_init__(self):
        if len(self.terms) != len(self.coefficients):
            raise InputError(
                f"An equation has {len(self.terms)} terms and {len(self.coefficients)} coefficients. Give "
                "one coefficient for each term."
            )
        if not self.lengths or not min((*self.lengths, self.max_step)) > 0:
            raise InputError(
                f"lengths={self.lengths} and max_step={self.max_step} of an equation must be positive."
            )
        for t in self.terms:
            states = [t.target, *(f.field for f in t.factors if isinstance(f.field, int))]
            orders = [t.outer, *(f.order for f in t.factors)]
            if not all(0 <= c < len(self.channels) for c in states):
                raise InputError(f"{t} names a channel beyond the {len(self.channels)} of the equation.")
            if any(len(o) != len(self.lengths) or min(o) < 0 or max(o) > _HIGHEST for o in orders):
                raise InputError(
                    f"{t} has an order that does not fit {len(self.lengths)} axes. Give one order for each "
                    f"axis, from 0 to {_HIGHEST}."
                )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the known inputs that the terms use."""
        own = {field.name for field in self.fields}
        named = (str(f.field) for t in self.terms for f in t.factors if not f.is_state)
        return tuple(name for name in dict.fromkeys(named) if name not in own)

    def field_values(self, points: tuple[int, ...]) -> dict[str, np.ndarray]:
        """The learned fields on a grid."""
        return {field.name: field.values(points[0]) for field in self.fields}

    def __str__(self) -> str:
        ending = "  (minus its mean over the box)" if self.conserves_mean else ""
        return "\n".join(self._sides("{}_t = {}" + ending, self._text))

    def latex(self) -> str:
        return " \\\\\n".join(self._sides("\\partial_t {} &= {}", self._latex))

    def sympy(self) -> list[str]:
        """One expression for each channel's rate, in functions `u(t, x)`, as `sympy.sympify` reads it."""
        return self._sides("{1}", self._sympy)

    def _sides(self, layout, write) -> list[str]:
        sides = []
        for c, name in enumerate(self.channels):
            own = [(t, v) for t, v in zip(self.terms, self.coefficients, strict=True) if t.target == c]
            sides.append(layout.format(name, " ".join(write(*readable(t, v)) for t, v in own) or "0"))
        return sides

    def name(self, field: int | str) -> str:
        return self.channels[field] if isinstance(field, int) else field

    def substeps(self, dt: float) -> int:
        """How many inner steps keep each within `max_step`."""
        return max(1, math.ceil(dt / self.max_step - 1e-6))

    def name_of(self, term: Term) -> str:
        """A term without its coefficient; with several channels, in whose equation it stands."""
        shown, _ = readable(term, 1.0)
        body = self._text(shown, 1.0).partition(" ")[2] or "1"
        return body if len(self.channels) == 1 else f"{body} in {self.channels[term.target]}_t"

    def details(self) -> list[str]:
        """Every term with its coefficient and, where it is known, the half width of its 95 % interval."""
        errors = self.standard_errors or (math.nan,) * len(self.terms)
        rows = zip(self.terms, self.coefficients, errors, strict=True)
        return [f"{self.channels[t.target]}_t: {self.describe(t, c, 1.96 * e)}" for t, c, e in rows]

    def describe(self, term: Term, value: float, half_width: float) -> str:
        """One term with its coefficient and half the width of its interval: `-1.002 ± 0.004  u u_x`."""
        shown, scaled = readable(term, value)
        body = self._text(shown, scaled).partition(" ")[2] or "1"
        width = abs(scaled / value) * half_width if value else half_width
        return f"{scaled:+.6g}{f' ± {width:.2g}' if width > 0 else ''}  {body}"

    def _text(self, term: Term, value: float) -> str:
        body = " ".join(_subscript(self.name(f.field), f.order) for f in term.factors)
        return f"{value:+.6g} {_subscript(f'({body})', term.outer) if any(term.outer) else body}".rstrip()

    def _latex(self, term: Term, value: float) -> str:
        mark = lambda o: "".join(
            f"\\partial_{a}^{{{n}}}" if n > 1 else f"\\partial_{a}"
            for a, n in zip(_AXES, o, strict=False)
            if n
        )
        body = "\\,".join(f"{mark(f.order)} {self.name(f.field)}".strip() for f in term.factors)
        return f"{value:+.6g}\\,{mark(term.outer)}({body})" if any(term.outer) else f"{value:+.6g}\\,{body}"

    def _sympy(self, term: Term, value: float) -> str:
        axes = ", ".join(_AXES[: len(self.lengths)])
        wrap = lambda text, o: (
            f"Derivative({text}, {', '.join(f'({a}, {n})' for a, n in zip(_AXES, o, strict=False) if n)})"
            if any(o)
            else text
        )
        body = "*".join(wrap(f"{self.name(f.field)}(t, {axes})", f.order) for f in term.factors) or "1"
        return f"+({value!r})*{wrap(body, term.outer)}"


def parse_terms(text: str, channels: Sequence[str], dims: int, inputs: Collection[str] = ()) -> list[Term]:
    """Terms as people write them: `u_xx, u u_x, (u^2)_x, 1`; for several channels `u: v u_xx, 1; v: u`.

    **Raises:** `InputError` for what is no term, or a name that is neither a channel nor an input.
    """
    out = []
    for part in filter(str.strip, text.split(";")):
        head, colon, body = part.rpartition(":")
        target = head.strip().removesuffix("_t")
        if colon and target not in channels:
            raise unknown_name("channel", target, channels)
        if not colon and len(channels) > 1:
            raise InputError(
                f"'{part.strip()}' does not say whose terms: write '{channels[0]}: {part.strip()}'."
            )
        place = channels.index(target) if colon else 0
        out += [_parse_term(term.strip(), place, channels, dims, inputs) for term in body.split(",")]
    return out


def _parse_term(text: str, target: int, channels, dims: int, inputs) -> Term:
    found = re.fullmatch(r"\((?P<inside>.*)\)(?:_(?P<axes>[xyz]+))?|(?P<plain>[^()]*)", text)
    if found is None or not text:
        raise InputError(f"'{text}' is no term. Write for example u_xx, u u_x, (u^2)_x or 1.")
    count = lambda axes: tuple((axes or "").count(a) for a in _AXES[:dims])
    factors: list[Factor] = []
    for word in (found["inside"] or found["plain"] or "").replace("*", " ").split():
        if word == "1":
            continue
        name, _, power = word.partition("^")
        field, _, axes = name.rpartition("_") if re.search(r"_[xyz]+$", name) else (name, "", "")
        if (power and not power.isdigit()) or set(axes) - set(_AXES[:dims]):
            raise InputError(f"'{word}' in '{text}' is no factor. Write for example u, u_x or u^2.")
        if field not in (*channels, *inputs):
            raise unknown_name("channel or input", field, (*channels, *inputs))
        which = channels.index(field) if field in channels else field
        factors += [Factor(which, count(axes))] * int(power or 1)
    return Term(target, count(found["axes"]), tuple(factors))


def changes_mean(term: Term) -> bool:
    """Whether a term may change the mean of its channel."""
    orders = sorted(sum(f.order) for f in term.factors)
    one_state = len({f.field for f in term.factors}) == 1 and term.degree == len(term.factors)
    # u_xx, and u u_x = (u^2)_x / 2 or u^2 u_x, are derivatives as a whole.
    is_derivative = one_state and (
        orders == [0] * (len(orders) - 1) + [1] or (len(orders) == 1 and orders[0] > 0)
    )
    return not any(term.outer) and not is_derivative


def channel_names(count: int) -> tuple[str, ...]:
    """`u, v, w`, or `u0, u1, ...` if there are more."""
    return tuple("uvw"[:count]) if count < 4 else tuple(f"u{i}" for i in range(count))


def lengths_of(length: float | Sequence[float], num_spatial_dims: int) -> tuple[float, ...]:
    """The lengths of a box, a number standing for all axes.

    **Raises:** `InputError` if they are not as many as axes, or not positive.
    """
    given = (length,) * num_spatial_dims if isinstance(length, int | float) else tuple(length)
    if len(given) != num_spatial_dims or not all(0 < x < math.inf for x in given):
        raise InputError(
            f"length={length} does not fit {num_spatial_dims} axes. Give one positive length for each axis."
        )
    return tuple(map(float, given))


def readable(term: Term, value: float) -> tuple[Term, float]:
    """The same term as people write it: `(u²)_x` becomes `2 u u_x`."""
    if sum(term.outer) == 1 and len(term.factors) >= 2 and len(set(term.factors[-2:])) == 1:
        *others, a, b = term.factors
        if a.is_state and not any(f.is_state for f in others):
            moved = Factor(b.field, tuple(i + j for i, j in zip(b.order, term.outer, strict=True)))
            return Term(term.target, (0,) * len(term.outer), (*others, a, moved)), 2 * value
    return term, value


def _subscript(name: str, order: Order) -> str:
    return f"{name}_{''.join(a * n for a, n in zip(_AXES, order, strict=False))}" if any(order) else name
