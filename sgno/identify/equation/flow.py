"""The flow of a PDE given by its terms, and its derivatives, in double precision on the host.

In amplitudes `v` of the Fourier modes of a periodic box,

    dv/dt = Lambda(k) v + n(v),    Lambda(k): channels x channels,

advanced by the fourth-order exponential Runge-Kutta scheme of Cox and Matthews (J. Comput. Phys. 176, 2002).
Products are formed on a grid fine enough that none of them aliases. A search tries many small systems that
differ in their terms, so this is NumPy: nothing is compiled.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from sgno.identify.equation.terms import Equation, Factor, Order, Term
from sgno.spectral import mode_numbers, mode_shape, multiplicity, shared_index, to_modes, to_points


@dataclass(frozen=True)
class Box:
    """A periodic box: points and side lengths along each axis.

    - `conserves_mean`: whether the mean over the box is taken from every rate of change.
    """

    points: tuple[int, ...]
    lengths: tuple[float, ...]
    conserves_mean: bool = False

    @property
    def dims(self) -> int:
        return len(self.points)

    @property
    def modes(self) -> tuple[int, ...]:
        return mode_shape(self.points)

    @property
    def multiplicity(self) -> np.ndarray:
        return multiplicity(self.points)

    def numbers(self) -> list[np.ndarray]:
        """Signed mode numbers along each axis, shaped to broadcast over the modes."""
        return list(np.ix_(*mode_numbers(self.points)))

    def inner(self) -> np.ndarray:
        """Which modes lie strictly inside the Nyquist frequency of every axis."""
        keep = np.ones(self.modes, bool)
        for number, n in zip(self.numbers(), self.points, strict=True):
            keep &= 2 * np.abs(number) < n
        return keep

    def derivative(self, order: Order) -> np.ndarray:
        """The symbol `prod_i (i k_i)^order_i` of the modes inside the Nyquist frequency, zero on it."""
        symbol = self.inner().astype(complex)
        for number, length, o in zip(self.numbers(), self.lengths, order, strict=True):
            symbol = symbol * (2j * np.pi / length * number) ** o
        return symbol

    def outer(self, order: Order) -> np.ndarray:
        """The symbol of a derivative that acts on a whole term."""
        symbol = self.derivative(order)
        if self.conserves_mean:
            symbol[(0,) * self.dims] = 0
        return symbol

    def padded(self, degree: int) -> "Box":
        """The grid on which a product of `degree` factors is formed without aliasing."""
        return Box(tuple(2 * math.ceil((degree + 1) * n / 4) for n in self.points), self.lengths)

    def broadcast(self, per_channel: np.ndarray) -> np.ndarray:
        """Values `(C,)` shaped to multiply amplitudes `(..., C, *modes)`."""
        return per_channel.reshape(-1, *(1,) * self.dims)


def box_of(equation: Equation, points: tuple[int, ...]) -> Box:
    """The box of an equation with these points."""
    return Box(points, equation.lengths, equation.conserves_mean)


def resample(v: np.ndarray, box: Box, to: Box) -> np.ndarray:
    """Amplitudes on another grid of the same box."""
    source, target = shared_index(box.points, to.points)
    out = np.zeros((*v.shape[: v.ndim - box.dims], *to.modes), v.dtype)
    out[target] = v[source]
    return out


@dataclass(frozen=True)
class Inputs:
    """Known inputs of several trajectories, by name: `(samples or 1, frames or 1, *points or 1s)`.

    - `holds`: inputs that keep the value of a frame until the next one. Others are linear between frames.
    """

    arrays: Mapping[str, np.ndarray]
    box: Box
    holds: frozenset[str] = frozenset()

    @property
    def parameters(self) -> list[str]:
        """Inputs constant in time and space: a linear term times one of them belongs to the generator."""
        return [n for n, a in self.arrays.items() if a.size == a.shape[0]]

    def parameter(self, name: str, samples: np.ndarray) -> np.ndarray:
        return _rows(self.arrays[name], samples).reshape(-1)

    def take(self, samples: np.ndarray, frames: slice) -> "Inputs":
        cut = lambda a: _rows(a, samples)[:, frames] if a.shape[1] > 1 else _rows(a, samples)
        return Inputs({n: cut(a) for n, a in self.arrays.items()}, self.box, self.holds)

    def field(
        self, factor: Factor, fine: Box, samples: np.ndarray, frame: np.ndarray, theta: float
    ) -> np.ndarray:
        """`∂^order w` on a finer grid, at the fraction `theta` of the way to the next frame."""
        name = str(factor.field)
        a = self.arrays[name]
        s = samples if len(a) > 1 else np.zeros_like(samples)
        last = a.shape[1] - 1
        w = a[s, np.minimum(frame, last)]
        if theta and name not in self.holds:
            w = (1 - theta) * w + theta * a[s, np.minimum(frame + 1, last)]
        if w.shape[1:] == (1,) * fine.dims:
            return np.zeros_like(w) if any(factor.order) else w
        v = to_modes(w, self.box.points) * self.box.derivative(factor.order)
        return to_points(resample(v, self.box, fine), fine.points)


def _rows(a: np.ndarray, samples: np.ndarray) -> np.ndarray:
    return a[samples] if len(a) > 1 else np.repeat(a, len(samples), 0)


def exponentials(z: np.ndarray) -> tuple[np.ndarray, ...]:
    """`exp(z)` and `phi_1(z) .. phi_3(z)` of matrices `(..., C, C)`.

    They stand beside each other in the first block row of the exponential of

        [[z, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]],

    which is computed by scaling, a Taylor polynomial, and squaring.
    """
    c = z.shape[-1]
    block = np.zeros((*z.shape[:-2], 4 * c, 4 * c), complex)
    block[..., :c, :c] = z
    for i in range(3):
        block[..., i * c : (i + 1) * c, (i + 1) * c : (i + 2) * c] = np.eye(c)
    squarings = max(0, math.ceil(math.log2(np.abs(block).sum(-1).max() / 0.5)))
    a = block / 2.0**squarings
    total = power = np.broadcast_to(np.eye(4 * c, dtype=complex), a.shape)
    for n in range(1, 15):
        power = power @ a / n
        total = total + power
    # A generator that grows without bound ends as infinity, which the search takes for divergence.
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(squarings):
            total = total @ total
    return tuple(total[..., :c, i * c : (i + 1) * c] for i in range(4))


@dataclass(frozen=True)
class Tables:
    """The coefficients of one inner step for each of several generators: `(tables, C, C, *modes)` arrays."""

    whole: np.ndarray
    half: np.ndarray
    inner: np.ndarray
    first: np.ndarray
    middle: np.ndarray
    last: np.ndarray

    @staticmethod
    def make(generator: np.ndarray, h: np.ndarray) -> "Tables":
        """**Arguments:** `generator`: `(tables, C, C, *modes)`; `h`: each table's inner step, `(tables,)`."""
        generator = np.moveaxis(generator, (1, 2), (-2, -1))
        h = h.reshape(-1, *(1,) * (generator.ndim - 1))
        whole, p1, p2, p3 = exponentials(h * generator)
        half, q1, *_ = exponentials(h / 2 * generator)
        rows = (whole, half, h / 2 * q1, h * (p1 - 3 * p2 + 4 * p3), h * (2 * p2 - 4 * p3), h * (4 * p3 - p2))
        return Tables(*(np.ascontiguousarray(np.moveaxis(r, (-2, -1), (1, 2))) for r in rows))

    def single(self) -> "Tables":
        return Tables(*(getattr(self, f.name).astype(np.complex64) for f in fields(self)))

    def take(self, index: np.ndarray) -> "Tables":
        """The table of each state; a single table serves all."""
        return self if len(self.whole) == 1 else Tables(*(getattr(self, f.name)[index] for f in fields(self)))


def multiply(matrix: np.ndarray, v: np.ndarray) -> np.ndarray:
    """`(batch or 1, C, C, *modes)` times amplitudes `(batch, [tangents,] C, *modes)`."""
    extra = v.ndim - matrix.ndim + 1
    if matrix.shape[1] == 1:
        return (matrix[:, 0][:, None] if extra else matrix[:, 0]) * v
    out = np.zeros_like(v)
    for i in range(matrix.shape[1]):
        for j in range(matrix.shape[1]):
            if extra:
                out[:, :, i] += matrix[:, None, i, j] * v[:, :, j]
            else:
                out[:, i] += matrix[:, i, j] * v[:, j]
    return out


class System:
    """Rates of change of a state by given terms.

    Terms with one state factor and otherwise only parameters form the generator; all others, the closure, are
    formed on the fine grid.
    """

    def __init__(self, terms: Sequence[Term], box: Box, channels: int, inputs: Inputs):
        self.terms = list(terms)
        self.box = box
        self.channels = channels
        self.inputs = inputs
        known = set(inputs.parameters)
        is_linear = [
            t.degree == 1 and all(f.is_state or f.field in known for f in t.factors) for t in self.terms
        ]
        self.linear = [j for j, yes in enumerate(is_linear) if yes]
        self.closure = [j for j, yes in enumerate(is_linear) if not yes]
        self.fine = box.padded(max((len(self.terms[j].factors) for j in self.closure), default=1))
        self.groups: dict[tuple[int, Order], list[int]] = {}
        for j in self.closure:
            self.groups.setdefault((self.terms[j].target, self.terms[j].outer), []).append(j)
        orders = {o for t in self.terms for o in (t.outer, *(f.order for f in t.factors))}
        self.symbols = {o: box.derivative(o) for o in orders}
        self.outer = {t.outer: box.outer(t.outer) for t in self.terms}
        # Tangents are in single precision: a Jacobian needs no more, and they take most of the time. In 1D
        # their transforms, derivative included, are matrix products: several times as fast as FFTs here.
        self.single = {o: s.astype(np.complex64) for o, s in self.symbols.items()}
        self.single_outer = {o: s.astype(np.complex64) for o, s in self.outer.items()}
        self.synthesis: dict[Order, np.ndarray] = {}
        self.analysis: dict[Order, np.ndarray] = {}
        if box.dims == 1:
            k = box.modes[0]
            unit = np.stack([np.eye(k), 1j * np.eye(k)], 1).reshape(2 * k, k)
            back = self._from_fine(np.eye(self.fine.points[0]))
            for o, s in self.symbols.items():
                self.synthesis[o] = self._to_fine(unit * s).astype(np.float32)
            for o, s in self.outer.items():
                self.analysis[o] = np.ascontiguousarray(back * s).view(float).astype(np.float32)

    def _to_fine(self, v: np.ndarray) -> np.ndarray:
        return to_points(resample(v, self.box, self.fine), self.fine.points)

    def _from_fine(self, q: np.ndarray) -> np.ndarray:
        return resample(to_modes(np.ascontiguousarray(q), self.fine.points), self.fine, self.box)

    def source(self, j: int) -> int:
        """The channel that a linear term takes."""
        return next(f.field for f in self.terms[j].factors if isinstance(f.field, int))

    def linear_symbol(self, j: int, samples: np.ndarray) -> np.ndarray:
        """The symbol of a linear term times its parameters, `(samples, *modes)`."""
        symbol, weight = self.outer[self.terms[j].outer], np.ones(len(samples))
        for f in self.terms[j].factors:
            if f.is_state:
                symbol = symbol * self.symbols[f.order]
            else:
                weight = weight * self.inputs.parameter(str(f.field), samples)
        return self.box.broadcast(weight) * symbol

    def generator(self, coefficients: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Lambda, `(samples, C, C, *modes)`."""
        out = np.zeros((len(samples), self.channels, self.channels, *self.box.modes), complex)
        for j in self.linear:
            if coefficients[j]:
                out[:, self.terms[j].target, self.source(j)] += coefficients[j] * self.linear_symbol(
                    j, samples
                )
        return out

    def factors(self, closure: Sequence[int], v, samples, frame, theta: float) -> dict[Factor, np.ndarray]:
        """On the fine grid, all factors of these terms at states `(batch, C, *modes)`."""
        out = {}
        for f in dict.fromkeys(f for j in closure for f in self.terms[j].factors):
            if isinstance(f.field, int):
                out[f] = self._to_fine(v[:, f.field] * self.symbols[f.order])
            else:
                out[f] = self.inputs.field(f, self.fine, samples, frame, theta)
        return out

    def _product(self, factors: Sequence[Factor], values: dict[Factor, np.ndarray], batch: int) -> np.ndarray:
        q = np.ones((batch, *(1,) * self.box.dims))
        for f in factors:
            q = q * values[f]
        return np.broadcast_to(q, (batch, *self.fine.points))

    def rates(self, coefficients: np.ndarray, values: dict[Factor, np.ndarray], batch: int) -> np.ndarray:
        """n(v), `(batch, C, *modes)`."""
        out = np.zeros((batch, self.channels, *self.box.modes), complex)
        for (target, outer), members in self.groups.items():
            q = [
                coefficients[j] * self._product(self.terms[j].factors, values, batch)
                for j in members
                if coefficients[j]
            ]
            if q:
                out[:, target] += self.outer[outer] * self._from_fine(np.sum(q, axis=0))
        return out

    def tangent_rates(
        self, coefficients: np.ndarray, values: dict[Factor, np.ndarray], tangents: np.ndarray
    ) -> np.ndarray:
        """n'(v) applied to tangents `(batch, m, C, *modes)`."""
        out = np.zeros_like(tangents)
        changes: dict[Factor, np.ndarray] = {}
        for (target, outer), members in self.groups.items():
            # The weight of a change of each factor: the other factors of its products.
            weights: dict[Factor, np.ndarray] = {}
            for j in members:
                factors = self.terms[j].factors
                for a, f in enumerate(factors):
                    if f.is_state and coefficients[j]:
                        rest = self._product(factors[:a] + factors[a + 1 :], values, len(out))
                        weights[f] = weights.get(f, np.zeros(1)) + coefficients[j] * rest
            if not weights:
                continue
            q = np.zeros((*tangents.shape[:2], *self.fine.points), np.float32)
            for f, w in weights.items():
                if f not in changes:
                    changes[f] = self._changes(f, tangents)
                q += w.astype(np.float32)[:, None] * changes[f]
            if self.box.dims == 1:
                out[:, :, target] += (q @ self.analysis[outer]).view(np.complex64)
            else:
                out[:, :, target] += self.single_outer[outer] * self._from_fine(q)
        return out

    def _changes(self, f: Factor, tangents: np.ndarray) -> np.ndarray:
        part = np.ascontiguousarray(tangents[:, :, int(f.field)])
        if self.box.dims == 1:
            return part.view(np.float32) @ self.synthesis[f.order]
        return self._to_fine(part * self.single[f.order])

    def features(self, v, samples, frame, theta: float, which: Sequence[int]) -> np.ndarray:
        """Each of the terms `which` by itself, `(batch, terms, *modes)`."""
        closure = [j for j in which if j in set(self.closure)]
        values = self.factors(closure, v, samples, frame, theta)
        out = np.zeros((len(v), len(which), *self.box.modes), complex)
        products: dict[tuple[Factor, ...], np.ndarray] = {}
        for i, j in enumerate(which):
            t = self.terms[j]
            if j not in closure:
                out[:, i] = self.linear_symbol(j, samples) * v[:, self.source(j)]
                continue
            if t.factors not in products:
                products[t.factors] = self._from_fine(self._product(t.factors, values, len(v)))
            out[:, i] = self.outer[t.outer] * products[t.factors]
        return out


def advance(
    system: System,
    coefficients: np.ndarray,
    tables: Tables,
    v: np.ndarray,
    *,
    samples: np.ndarray,
    frame: np.ndarray,
    substeps: int,
    tangents: np.ndarray | None = None,
    which: Sequence[int] = (),
) -> tuple[np.ndarray, np.ndarray | None]:
    """Advance states by one frame, and tangents with them.

    **Arguments:**

    - `tables`: of the inner step, one for each state or one for all.
    - `samples`, `frame`: the trajectory and the frame that each state belongs to, for the inputs.
    - `tangents`: `(batch, m, C, *modes)`; the last `len(which)` of them are derivatives with respect to the
      coefficients of the terms `which`, the others with respect to initial values.
    """
    closure = [j for j in system.closure if coefficients[j]]
    single = tables.single() if tangents is not None else tables

    def rate(x, dx, theta):
        values = system.factors(closure, x, samples, frame, theta)
        n = system.rates(coefficients, values, len(x))
        if dx is None:
            return n, None
        dn = system.tangent_rates(coefficients, values, dx)
        own = system.features(x, samples, frame, theta, which)
        for i, j in enumerate(which, start=dx.shape[1] - len(which)):
            dn[:, i, system.terms[j].target] += own[:, i - dx.shape[1] + len(which)]
        return n, dn

    def combine(*parts):
        """Sums of table entries times states, for the state and its tangents."""
        x = _sum([multiply(getattr(tables, name), a) for name, (a, _) in parts])
        if tangents is None:
            return x, None
        return x, _sum([multiply(getattr(single, name), b) for name, (_, b) in parts])

    state = (v, tangents)
    # Divergence is a result: it ends as infinity in the residual.
    with np.errstate(over="ignore", invalid="ignore"):
        for s in range(substeps):
            n1 = rate(*state, s / substeps)
            a = combine(("half", state), ("inner", n1))
            n2 = rate(*a, (s + 0.5) / substeps)
            b = combine(("half", state), ("inner", n2))
            n3 = rate(*b, (s + 0.5) / substeps)
            c = combine(("half", a), ("inner", _plus(n3, n1, 2, -1)))
            n4 = rate(*c, (s + 1) / substeps)
            state = combine(("whole", state), ("first", n1), ("middle", _plus(n2, n3, 1, 1)), ("last", n4))
    return state


def _sum(parts: list[np.ndarray]) -> np.ndarray:
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def _plus(a, b, x: int, y: int):
    return x * a[0] + y * b[0], None if a[1] is None else x * a[1] + y * b[1]
