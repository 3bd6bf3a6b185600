"""SGNO written a second time, in PyTorch: the yardstick for correctness and for speed.

    u+ = u + Q(L_last(...L_0(P([u, x]))))

It follows the paper's equations and shares no code with `sgno`, so agreement between the two means something.
It is meant as good ordinary PyTorch: library FFTs, exact spectral norms, batches `(B, C_u, *N)`.
Weights travel between the two writings as a flat dictionary of float32 arrays.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD_WIDTH = 128


@dataclass(frozen=True)
class Settings:
    """Sizes and variants of one model; `paper(d)` gives those of the paper."""

    num_spatial_dims: int
    num_channels: int
    width: int
    num_modes: int
    num_blocks: int
    coordinates: Literal["ends", "none", "periodic"] = "ends"
    generator: Literal["nonpositive", "unconstrained"] = "nonpositive"
    update: Literal["etd", "residual", "pointwise"] = "etd"
    correction: Literal["mlp", "none"] = "mlp"
    pointwise: Literal["product", "convolution"] = "product"

    def __post_init__(self):
        for name, known in (
            ("coordinates", ("ends", "none", "periodic")),
            ("generator", ("nonpositive", "unconstrained")),
            ("update", ("etd", "residual", "pointwise")),
            ("correction", ("mlp", "none")),
            ("pointwise", ("product", "convolution")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is not one of {', '.join(known)}.")

    @property
    def mode_shape(self) -> tuple[int, ...]:
        """Retained modes along each axis: both signs everywhere but on the last axis of the real FFT."""
        return (2 * self.num_modes,) * (self.num_spatial_dims - 1) + (self.num_modes,)

    @property
    def num_coordinates(self) -> int:
        return {"none": 0, "ends": 1, "periodic": 2}[self.coordinates] * self.num_spatial_dims


def paper(num_spatial_dims: int, num_channels: int = 1, **variant) -> Settings:
    """The paper's sizes: (C, m, L) = (11, 26, 7), (5, 10, 9), (10, 6, 2) in 1D, 2D, 3D."""
    width, num_modes, num_blocks = {1: (11, 26, 7), 2: (5, 10, 9), 3: (10, 6, 2)}[num_spatial_dims]
    return replace(Settings(num_spatial_dims, num_channels, width, num_modes, num_blocks), **variant)


def inverse_softplus(y: float) -> float:
    return math.log(math.expm1(y))


def phi1(z: Tensor) -> Tensor:
    """phi_1(z) = (e^z - 1) / z, and 1 at z = 0."""
    # Replacing z first keeps the unused quotient, and with it the gradient, finite at 0.
    small = z.abs() < 1e-4
    safe = torch.where(small, torch.ones_like(z), z)
    return torch.where(small, 1 + z / 2, torch.expm1(safe) / safe)


def coordinate_channels(settings: Settings, points: tuple[int, ...], like: Tensor) -> Tensor:
    """The coordinate field `x` of the lift, `(d_coords, *N)`."""
    options = {"dtype": like.dtype, "device": like.device}
    channels = []
    for axis, n in enumerate(points):
        shape = [n if i == axis else 1 for i in range(len(points))]
        if settings.coordinates == "ends":
            lines = [torch.linspace(0, 1, n, **options)]
        else:
            angle = 2 * math.pi * torch.arange(n, **options) / n
            lines = [torch.sin(angle), torch.cos(angle)]
        channels += [line.reshape(shape).expand(points) for line in lines]
    return torch.stack(channels)


class Affine(nn.Module):
    """y(x) = W v(x) + b at every point.

    `pointwise="convolution"` is the usual way to write it, a convolution with a kernel of one point;
    `"product"` is a batched matrix product, which spares the library its reordering copies.
    """

    def __init__(self, fan_in: int, fan_out: int, pointwise: str):
        super().__init__()
        self.pointwise = pointwise
        bound = 1 / math.sqrt(fan_in)
        self.weight = nn.Parameter(torch.empty(fan_out, fan_in).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(fan_out).uniform_(-bound, bound))

    def forward(self, v: Tensor, weight: Tensor | None = None) -> Tensor:
        weight = self.weight if weight is None else weight
        if self.pointwise == "product":
            many = weight.expand(v.shape[0], *weight.shape)
            return torch.baddbmm(self.bias[:, None], many, v.flatten(2)).unflatten(2, v.shape[2:])
        kernel = weight.reshape(*weight.shape, *(1,) * (v.ndim - 2))
        return (F.conv1d, F.conv2d, F.conv3d)[v.ndim - 3](v, kernel, self.bias)


class PointwiseMLP(nn.Module):
    """W2 gelu(W1 v + b1) + b2 at every point."""

    def __init__(self, fan_in: int, hidden: int, fan_out: int, pointwise: str):
        super().__init__()
        self.first = Affine(fan_in, hidden, pointwise)
        self.second = Affine(hidden, fan_out, pointwise)

    def normalised(self) -> tuple[Tensor, Tensor]:
        """Both matrices divided by their spectral norms."""
        first, second = self.first.weight, self.second.weight
        return (
            first / torch.linalg.matrix_norm(first, ord=2),
            second / torch.linalg.matrix_norm(second, ord=2),
        )

    def forward(self, v: Tensor, weights: tuple[Tensor | None, Tensor | None] = (None, None)) -> Tensor:
        return self.second(F.gelu(self.first(v, weights[0])), weights[1])


class Generator(nn.Module):
    """lambda_c(k) = -[softplus(theta_c(k)) + softplus(b_c - softplus(s_c) rho(k))].

    Unconstrained, the part per mode is free in sign: lambda_c(k) = theta_c(k) - softplus(...).
    """

    def __init__(self, settings: Settings):
        super().__init__()
        self.constrained = settings.generator == "nonpositive"
        start = inverse_softplus(1e-3)
        self.theta = nn.Parameter(0.1 * torch.randn(settings.width, *settings.mode_shape))
        self.b = nn.Parameter(torch.full((settings.width,), start))
        self.s = nn.Parameter(torch.full((settings.width,), start))

    def forward(self, rho: Tensor) -> Tensor:
        per_channel = (-1,) + (1,) * rho.ndim
        b, s = self.b.reshape(per_channel), self.s.reshape(per_channel)
        own = -F.softplus(self.theta) if self.constrained else self.theta
        return own - F.softplus(b - F.softplus(s) * rho)


class Budget(nn.Module):
    """r_c(k) = 2 sigmoid(a_c - softplus(t_c) rho(k))."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(settings.width))
        self.t = nn.Parameter(torch.full((settings.width,), inverse_softplus(1e-3)))

    def forward(self, rho: Tensor) -> Tensor:
        per_channel = (-1,) + (1,) * rho.ndim
        return 2 * torch.sigmoid(self.a.reshape(per_channel) - F.softplus(self.t.reshape(per_channel)) * rho)


class Mixer(nn.Module):
    """One complex C x C matrix A(k) per retained mode, kept as two real arrays."""

    def __init__(self, settings: Settings):
        super().__init__()
        width, shape = settings.width, (settings.width, settings.width, *settings.mode_shape)
        if settings.num_spatial_dims == 2:
            draw: Callable[[], Tensor] = lambda: torch.randn(shape) / math.sqrt(2 * width)
        else:
            draw = lambda: torch.rand(shape) / width**2
        self.real = nn.Parameter(draw())
        self.imag = nn.Parameter(draw())

    def forward(self, capped: bool) -> Tensor:
        matrix = torch.complex(self.real, self.imag)
        if not capped:
            return matrix
        norm = torch.linalg.matrix_norm(matrix, ord=2, dim=(0, 1))
        return matrix / norm.clamp(min=1.0)


@dataclass(frozen=True)
class Coefficients:
    """What one layer needs of its weights: carry, scaled mixer, normalised correction matrices."""

    carry: Tensor | None
    mixer: Tensor | None
    matrices: tuple[Tensor, Tensor] | None


class Layer(nn.Module):
    """B v + F^-1[exp(lambda) v^ + phi1(lambda) r A C(v)^], or B v + v + C(v), before the activation."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        self.structured = settings.update == "etd"
        self.corrected = settings.correction == "mlp"
        self.local = Affine(settings.width, settings.width, settings.pointwise)
        # A variant has only the parameters that it uses.
        if self.structured:
            self.generator = Generator(settings)
        if self.corrected:
            self.correction = PointwiseMLP(
                settings.width, 2 * settings.width, settings.width, settings.pointwise
            )
        self.mixed = self.corrected and settings.update != "pointwise"
        if self.mixed:
            self.mixer = Mixer(settings)
        if self.structured and self.corrected:
            self.budget = Budget(settings)
        self.register_buffer("rho", radius(settings), persistent=False)
        self.rho: Tensor

    def coefficients(self) -> Coefficients:
        """Everything that depends on the weights alone."""
        matrices = self.correction.normalised() if self.corrected else None
        if not self.structured:
            return Coefficients(None, self.mixer(capped=False) if self.mixed else None, matrices)
        lam = self.generator(self.rho)
        if not self.corrected:
            return Coefficients(torch.exp(lam), None, None)
        gain = phi1(lam) * self.budget(self.rho)
        return Coefficients(torch.exp(lam), gain[:, None] * self.mixer(capped=True), matrices)

    def forward(self, v: Tensor, coefficients: Coefficients) -> Tensor:
        if self.settings.update == "pointwise":
            out = self.local(v) + v
            return out if coefficients.matrices is None else out + self.correction(v, coefficients.matrices)
        points = tuple(v.shape[2:])
        axes = tuple(range(2, v.ndim))
        blocks = mode_blocks(self.settings.num_modes, points)

        hat = gather(torch.fft.rfftn(v, dim=axes), blocks)
        if coefficients.carry is not None:
            hat = coefficients.carry * hat
        if coefficients.mixer is not None and coefficients.matrices is not None:
            forcing = torch.fft.rfftn(self.correction(v, coefficients.matrices), dim=axes)
            hat = hat + torch.einsum("oi...,bi...->bo...", coefficients.mixer, gather(forcing, blocks))
        branch = torch.fft.irfftn(scatter(hat, blocks, points), s=points, dim=axes)
        return self.local(v) + branch


class SGNO(nn.Module):
    """One step `u -> u+` for a batch of states, `(B, C_u, *N)`."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        self.lift = Affine(
            settings.num_channels + settings.num_coordinates, settings.width, settings.pointwise
        )
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.num_blocks))
        self.head = PointwiseMLP(settings.width, HEAD_WIDTH, settings.num_channels, settings.pointwise)

    def coefficients(self) -> list[Coefficients]:
        """Of every layer: once per update in training, once per trajectory in a rollout."""
        return [cast(Layer, layer).coefficients() for layer in self.layers]

    def forward(self, u: Tensor, coefficients: list[Coefficients] | None = None) -> Tensor:
        coefficients = self.coefficients() if coefficients is None else coefficients
        v = u
        if self.settings.coordinates != "none":
            x = coordinate_channels(self.settings, tuple(u.shape[2:]), u)
            v = torch.cat([u, x.expand(u.shape[0], *x.shape)], dim=1)
        v = self.lift(v)
        last = len(self.layers) - 1
        for i, (layer, of_layer) in enumerate(zip(self.layers, coefficients, strict=True)):
            v = layer(v, of_layer)
            v = F.gelu(v) if i < last else v
        return u + self.head(v)

    def count(self, complex_once: bool = False) -> int:
        """Number of parameters, a complex weight counted as two real numbers or once."""
        imaginary = sum(p.numel() for name, p in self.named_parameters() if name.endswith("mixer.imag"))
        return sum(p.numel() for p in self.parameters()) - (imaginary if complex_once else 0)


def radius(settings: Settings) -> Tensor:
    """rho(k) = |(|k_1|, ..., |k_d|)| / ((m - 1) sqrt(d)) on the retained modes."""
    m, d = settings.num_modes, settings.num_spatial_dims
    nonnegative = torch.arange(m)
    both = torch.cat([nonnegative, torch.arange(m, 0, -1)])  # |k| of 0..m-1, -m..-1
    axes = torch.meshgrid(*[both] * (d - 1), nonnegative, indexing="ij")
    squares = torch.stack([(k.float() / max(m - 1, 1)) ** 2 for k in axes])
    return torch.sqrt(squares.sum(0) / d)


def mode_blocks(m: int, points: tuple[int, ...]) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Corners of the spectrum and their places on the mode grid: both signs on every axis but the last."""
    if any(n < 2 * m for n in points):
        raise ValueError(f"modes={m} needs at least {2 * m} points per axis, but the grid is {points}.")
    low = slice(0, m)
    blocks = [((low,), (low,))]
    for n in reversed(points[:-1]):
        signs = [(low, low), (slice(n - m, n), slice(m, 2 * m))]
        blocks = [((here, *there), (mine, *others)) for here, mine in signs for there, others in blocks]
    return blocks


def gather(spectrum: Tensor, blocks) -> Tensor:
    """The retained modes `(B, C, *K)` of a full real-FFT spectrum."""
    if len(blocks) == 1:
        return spectrum[(..., *blocks[0][0])]
    shape = [max(mode[i].stop for _, mode in blocks) for i in range(len(blocks[0][1]))]
    modes = spectrum.new_empty(*spectrum.shape[:2], *shape)
    for corner, mode in blocks:
        modes[(..., *mode)] = spectrum[(..., *corner)]
    return modes


def scatter(modes: Tensor, blocks, points: tuple[int, ...]) -> Tensor:
    """A full spectrum with the retained modes in place and zeros elsewhere."""
    spectrum = modes.new_zeros(*modes.shape[:2], *points[:-1], points[-1] // 2 + 1)
    for corner, mode in blocks:
        spectrum[(..., *corner)] = modes[(..., *mode)]
    return spectrum


def load_numpy(module: SGNO, weights: Mapping[str, np.ndarray]) -> SGNO:
    """Copy weights in, by the names of `dump_numpy`; missing, extra or misshapen ones are an error."""
    state = {name: torch.from_numpy(np.array(value, dtype=np.float32)) for name, value in weights.items()}
    module.load_state_dict(state, strict=True)
    return module


def dump_numpy(module: SGNO) -> dict[str, np.ndarray]:
    """All weights as float32 arrays, by name."""
    return {name: value.detach().numpy().copy() for name, value in module.named_parameters()}
