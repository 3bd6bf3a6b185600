"""Bases of real fields on a box, one factor per axis, and the transforms between points and modes.

A basis is a tuple with one entry per axis. A number stands for a Fourier axis of that many points, so that
the points of a periodic grid are its basis; `Sine` and `Cosine` are axes between two walls. Periodic axes
have length 2 pi and walled ones pi, which makes every wavenumber a whole number:

    u(x) = sum_k m(k) v(k) e_k(x),   e_k = product over axes of exp(i k x), sin(k x) or cos(k x).

The coefficients v are amplitudes: they are equal on every grid that resolves the field. A real field needs
half of its Fourier modes, k >= 0 along the last Fourier axis; the multiplicity m(k) counts the modes that a
stored one stands for. Without a Fourier axis the amplitudes are real.

NumPy arrays are transformed on the host, JAX arrays by JAX.
"""

import dataclasses
from abc import ABC
from collections.abc import Iterator
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from sgno.errors import InputError


@dataclasses.dataclass(frozen=True)
class _Walled(ABC):
    """An axis between two walls: a Fourier axis of twice its cells on which fields are odd or even.

    **Arguments:**

    - `points`: how many.
    - `at`: `"walls"` if the first and the last point lie on the walls, x_j = pi j / (points - 1);
        `"centres"` if points lie in the middle of cells, x_j = pi (j + 1/2) / points.

    Modes are 0..cells for both kinds, so that a derivative, which turns one into the other, keeps its place.
    Those that a basis does not have (the sine of k = 0, for one) are stored as zero, with multiplicity 0.
    """

    odd: ClassVar[bool]

    points: int
    at: Literal["walls", "centres"] = "walls"

    def __post_init__(self):
        if self.at not in ("walls", "centres"):
            raise InputError(f"at={self.at!r} is unknown. Use 'walls' or 'centres'.")
        if self.points < 2:
            raise InputError(f"An axis between walls needs at least 2 points, but got {self.points}.")

    @property
    def cells(self) -> int:
        return self.points - (self.at == "walls")


@dataclasses.dataclass(frozen=True)
class Sine(_Walled):
    """sin(k x) on [0, pi]: fields that vanish at both walls."""

    odd: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class Cosine(_Walled):
    """cos(k x) on [0, pi]: fields whose slope vanishes at both walls."""

    odd: ClassVar[bool] = False


Basis = tuple[int | Sine | Cosine, ...]
Either = TypeVar("Either", Array, np.ndarray)
if TYPE_CHECKING:
    # Either kind does what we ask of it, which a type checker cannot know.
    AnyArray = Any
else:
    AnyArray = Array | np.ndarray


def grid_points(basis: Basis) -> tuple[int, ...]:
    """The number of points along each axis."""
    return tuple(axis if isinstance(axis, int) else axis.points for axis in basis)


def mode_shape(basis: Basis) -> tuple[int, ...]:
    """The shape of one channel's coefficients."""
    return tuple(len(k) for k in mode_numbers(basis))


@cache
def mode_numbers(basis: Basis) -> tuple[np.ndarray, ...]:
    """The signed wavenumbers along each axis, in the order in which modes are stored."""
    numbers = []
    for i, axis in enumerate(basis):
        n = _period(axis)
        one_sided = _one_sided(basis, i)
        numbers.append(np.arange(n // 2 + 1) if one_sided else (np.arange(n) + n // 2) % n - n // 2)
        numbers[-1].flags.writeable = False
    return tuple(numbers)


def wavenumbers(basis: Basis) -> np.ndarray:
    """The signed wavenumbers of every mode, `(d, *modes)`."""
    return np.stack(np.meshgrid(*mode_numbers(basis), indexing="ij"))


def wavenumber_norm(basis: Basis) -> np.ndarray:
    """|k|_2 of every mode."""
    return np.sqrt((wavenumbers(basis) ** 2).sum(0))


def multiplicity(basis: Basis) -> np.ndarray:
    """m(k), how many modes each stored mode stands for, so that mean(u²) = sum_k m(k) |v(k)|².

    On a Fourier axis 2 where only k >= 0 is stored, but 1 at 0 and at Nyquist.
    """
    factors = []
    for i, (axis, k) in enumerate(zip(basis, mode_numbers(basis), strict=True)):
        m = np.full(len(k), 2.0 if _one_sided(basis, i) else 1.0)
        if isinstance(axis, Sine | Cosine):
            # sin(0 x) vanishes everywhere; at k = cells, sines vanish on walls and cosines at centres.
            m[0] = not axis.odd
            m[-1] = axis.odd == (axis.at == "centres")
        elif _one_sided(basis, i):
            m[2 * k % axis == 0] = 1
        factors.append(m)
    # A new array each time: JAX lowers a constant in the precision in which it met the same array first.
    return np.asarray(reduce(np.multiply, np.ix_(*factors)))


def to_modes(u: Float[Either, "*batch_and_points"], basis: Basis) -> Inexact[Either, "*batch_and_modes"]:
    """Amplitudes of real fields, whose last axes are those of the basis."""
    d, points = len(basis), grid_points(basis)
    if u.shape[-d:] != points:
        raise InputError(f"Expected fields on {points} points, but got the shape {u.shape}.")
    for i, axis in enumerate(basis):
        if isinstance(axis, Sine | Cosine):
            u = _walled_modes(u, axis, i - d)
    if not (periodic := _periodic(basis)):
        return u
    # NumPy before 2.0 computes in double precision for any input.
    dtype = np.result_type(u.dtype, np.complex64)
    return namespace(u).fft.rfftn(u, axes=periodic, norm="forward").astype(dtype)


def to_points(v: Inexact[Either, "*batch_and_modes"], basis: Basis) -> Float[Either, "*batch_and_points"]:
    """The real fields with these amplitudes."""
    d, dtype = len(basis), np.finfo(v.dtype).dtype
    if v.shape[-d:] != mode_shape(basis):
        raise InputError(f"Expected amplitudes of shape {mode_shape(basis)}, but got {v.shape}.")
    if periodic := _periodic(basis):
        sizes = [grid_points(basis)[i] for i in periodic]
        v = namespace(v).fft.irfftn(v, s=sizes, axes=periodic, norm="forward")
    for i, axis in enumerate(basis):
        if isinstance(axis, Sine | Cosine):
            v = _walled_points(v, axis, i - d)
    return v.astype(dtype)


def derivative(basis: Basis, axis: int) -> tuple[np.ndarray, Basis]:
    """The first derivative along one axis: the multiplier of the amplitudes, and the basis of the result.

    Sines become cosines and cosines sines. The Nyquist mode of a Fourier axis has no odd derivative.
    """
    along = basis[axis]
    k = wavenumbers(basis)[axis]
    if isinstance(along, int):
        return 1j * k * (2 * np.abs(k) != along), basis
    other = Cosine(along.points, along.at) if along.odd else Sine(along.points, along.at)
    return (k if along.odd else -k).astype(float), (*basis[:axis], other, *basis[axis + 1 :])


def shared_modes(of: Basis, to: Basis) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Where the modes that two grids share are stored on each of them, axis by axis.

    Grids of different size share |k| < min/2: the smaller one's Nyquist mode stands for two modes.
    """
    for i, (a, b) in enumerate(zip(of, to, strict=True)):
        n, m = _period(a), _period(b)
        k = mode_numbers(of if n <= m else to)[i]
        if n != m:
            k = k[2 * np.abs(k) < min(n, m)]
        yield (k, k) if _one_sided(of, i) else (k % n, k % m)


def shared_index(of: Basis, to: Basis) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The indices of the shared modes in arrays `(..., *modes)` on each of two grids."""
    source, target = zip(*shared_modes(of, to), strict=True)
    return (..., *np.ix_(*source)), (..., *np.ix_(*target))


def namespace(x: Any) -> Any:
    """NumPy for its arrays, `jax.numpy` for all others."""
    return np if isinstance(x, np.ndarray) else jnp


def _period(axis: int | Sine | Cosine) -> int:
    """The points of an axis continued to a whole period."""
    return axis if isinstance(axis, int) else 2 * axis.cells


def _periodic(basis: Basis) -> tuple[int, ...]:
    """The Fourier axes, counted from the end."""
    return tuple(i - len(basis) for i, axis in enumerate(basis) if isinstance(axis, int))


def _one_sided(basis: Basis, i: int) -> bool:
    return not isinstance(basis[i], int) or i - len(basis) == _periodic(basis)[-1]


def _half_cell(axis: _Walled) -> np.ndarray:
    """exp(-i k x_0) with x_0 the first point: what shifts the modes of the FFT to it."""
    shift = 0.0 if axis.at == "walls" else np.pi / (2 * axis.cells)
    return np.exp(-1j * shift * np.arange(axis.cells + 1))


def _walled_modes(u: Any, axis: Sine | Cosine, position: int) -> Any:
    """The modes of the odd or even continuation."""
    xp = namespace(u)
    u = xp.moveaxis(u, position, -1)
    mirrored = u[..., -2:0:-1] if axis.at == "walls" else u[..., ::-1]
    whole = xp.concatenate([u, -mirrored if axis.odd else mirrored], axis=-1)
    v = xp.fft.rfft(whole, norm="forward")
    v = v * _half_cell(axis).astype(v.dtype)
    # What a nonzero value on the wall adds to the modes of a sine basis is real, and left out here.
    v = (-v.imag if axis.odd else v.real) * (multiplicity((axis,)) > 0)
    return xp.moveaxis(v.astype(u.dtype), -1, position)


def _walled_points(v: Any, axis: Sine | Cosine, position: int) -> Any:
    xp = namespace(v)
    v = xp.moveaxis(v, position, -1)
    turned = _half_cell(axis).conj() * (multiplicity((axis,)) > 0) * (-1j if axis.odd else 1)
    u = xp.fft.irfft(
        v * turned.astype(np.result_type(v.dtype, np.complex64)), n=2 * axis.cells, norm="forward"
    )
    return xp.moveaxis(u[..., : axis.points].astype(v.dtype), -1, position)
