"""A trained step in PyTorch. Needs torch and numpy only; nothing here is executed from the files it reads.

    from step import load
    step = load()                        # reads settings.json and weights.npz beside this file
    u_next = step(u)                     # u: float32 (batch, channels, *points)

Everything that depends on the weights alone was computed before they were written, so a step is ready to run:
on any device (`step.to(device)`), and differentiable with respect to the state.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def load(folder: Path | str | None = None) -> "Step":
    """The step whose `settings.json` and `weights.npz` lie in this folder, by default beside this file."""
    folder = Path(__file__).parent if folder is None else Path(folder)
    settings = json.loads((folder / "settings.json").read_text())
    with np.load(folder / "weights.npz", allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(np.array(file[name])) for name in file.files}
    model = {"sgno": SGNO, "sgno-x": SGNOX, "linear": Linear}[settings["kind"]](settings, arrays)
    return Step(model, settings, arrays)


class Step(nn.Module):
    """u+ = center + scale model((u - center) / scale), channel by channel; the model alone where it was
    trained on states as they are."""

    center: Tensor
    scale: Tensor

    def __init__(self, model: nn.Module, settings: dict, arrays: dict[str, Tensor]):
        super().__init__()
        self.model = model
        self.channels, self.points = int(settings["channels"]), tuple(settings["points"])
        column = (-1, *(1,) * len(self.points))
        self.register_buffer("center", arrays["center"].reshape(column))
        self.register_buffer("scale", arrays["scale"].reshape(column))

    def forward(self, u: Tensor) -> Tensor:
        if u.ndim != 2 + len(self.points) or u.shape[1] != self.channels:
            raise ValueError(
                f"The states have shape {tuple(u.shape)}, but this step takes "
                f"(batch, {self.channels}, *points) with {len(self.points)} axes in space."
            )
        return self.center + self.scale * self.model((u - self.center) / self.scale)


class SGNO(nn.Module):
    """u+ = u + Q(L_last(... gelu(L_0(P([u, x]))))) with

        L(v) = B v + IFFT[ carry v^ + coupling C(v)^ ]   on the retained modes.

    Runs on any grid with at least two points per retained mode along each axis.
    """

    def __init__(self, settings: dict, arrays: dict[str, Tensor]):
        super().__init__()
        self.modes, self.coordinates = int(settings["num_modes"]), settings["coordinates"]
        self.blocks, self.spectral = int(settings["num_blocks"]), bool(settings.get("spectral", True))
        complex_parts = {name[:-5] for name in arrays if name.endswith(".real")}
        for name, value in arrays.items():
            if name not in ("center", "scale") and not name.endswith((".real", ".imag")):
                self.register_buffer(_flat(name), value)
        for name in complex_parts:
            self.register_buffer(_flat(name), torch.complex(arrays[f"{name}.real"], arrays[f"{name}.imag"]))

    def part(self, name: str) -> Tensor | None:
        """A coefficient by its name, None where this model does not have it."""
        return self._buffers.get(_flat(name))

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        """Matrix and bias of an affine map."""
        return self.get_buffer(_flat(f"{name}.weight")), self.get_buffer(_flat(f"{name}.bias"))

    def forward(self, u: Tensor) -> Tensor:
        x = self._coordinates(u)
        v = _affine(torch.cat([u, x.expand(u.shape[0], *x.shape)], dim=1), *self.pair("lift"))
        for i in range(self.blocks):
            v = self._layer(v, f"layers.{i}")
            v = v if i == self.blocks - 1 else F.gelu(v)
        return u + _affine(F.gelu(_affine(v, *self.pair("head.first"))), *self.pair("head.second"))

    def _layer(self, v: Tensor, name: str) -> Tensor:
        points, axes = tuple(v.shape[2:]), tuple(range(2, v.ndim))
        if not self.spectral:
            return _affine(v, *self.pair(f"{name}.local")) + self._field(v, name)
        kept = self._kept(points, v.device)
        hat = torch.fft.rfftn(v, dim=axes)[kept]
        if (carry := self.part(f"{name}.carry")) is not None:
            hat = carry * hat
        if (coupling := self.part(f"{name}.coupling")) is not None:
            field = torch.fft.rfftn(self._field(v, name), dim=axes)[kept]
            hat = hat + torch.einsum("oi...,bi...->bo...", coupling, field)
        spectrum = hat.new_zeros(*hat.shape[:2], *points[:-1], points[-1] // 2 + 1)
        spectrum[kept] = hat
        return _affine(v, *self.pair(f"{name}.local")) + torch.fft.irfftn(spectrum, s=points, dim=axes)

    def _field(self, v: Tensor, name: str) -> Tensor:
        """The correction field C(v), zero in a model that has none."""
        if self.part(f"{name}.first.weight") is None:
            return torch.zeros_like(v)
        hidden = F.gelu(_affine(v, *self.pair(f"{name}.first")))
        return _affine(hidden, *self.pair(f"{name}.second"))

    def _kept(self, points: tuple[int, ...], device: torch.device) -> tuple:
        """Where the retained modes lie: 0..m-1 on the last axis, and -m..-1 too on the others."""
        m = self.modes
        if min(points) < 2 * m:
            raise ValueError(f"modes={m} needs at least {2 * m} points per axis, but the grid is {points}.")
        low = torch.arange(m, device=device)
        axes = [torch.cat([low, torch.arange(n - m, n, device=device)]) for n in points[:-1]] + [low]
        shapes = [[-1 if i == axis else 1 for i in range(len(axes))] for axis in range(len(axes))]
        return (
            slice(None),
            slice(None),
            *(k.reshape(shape) for k, shape in zip(axes, shapes, strict=True)),
        )

    def _coordinates(self, u: Tensor) -> Tensor:
        points, channels = tuple(u.shape[2:]), []
        for axis, n in enumerate(points):
            if self.coordinates == "none":
                continue
            k = torch.arange(n, dtype=torch.float64, device=u.device)
            angle = 2 * math.pi * k / n
            lines = [k / (n - 1)] if self.coordinates == "ends" else [torch.sin(angle), torch.cos(angle)]
            shape = [n if i == axis else 1 for i in range(len(points))]
            channels += [line.to(u.dtype).reshape(shape).expand(points) for line in lines]
        return torch.stack(channels) if channels else u.new_zeros(0, *points)


class SGNOX(nn.Module):
    """S inner steps of an exponential Runge-Kutta scheme for

        dv/dt = (Lambda + m) v + K v + sum_j P_j q_j(v) + f,   q_j = FFT[ prod_a IFFT(D_a v) ],

    every stage within the trapping set |v(k)| <= r(k). Runs on the grid it was exported for.
    """

    decay: Tensor
    half_decay: Tensor
    first: Tensor
    half_first: Tensor
    middle: Tensor
    last: Tensor
    K: Tensor | None
    D: Tensor
    P: Tensor
    f: Tensor | None
    T: Tensor
    r: Tensor | None
    bound: Tensor | None
    factor_channels: Tensor

    def __init__(self, settings: dict, arrays: dict[str, Tensor]):
        super().__init__()
        self.points = tuple(settings["points"])
        self.stages, self.inner_steps = int(settings["stages"]), int(settings["inner_steps"])
        self.products = [list(term) for term in settings["products"]]
        self.register_buffer("factor_channels", torch.tensor(settings["factor_channels"], dtype=torch.long))
        for name in ("decay", "half_decay", "first", "half_first", "middle", "last", "K", "D", "P", "f", "T"):
            real, imag = arrays.get(f"{name}.real"), arrays.get(f"{name}.imag")
            self.register_buffer(name, None if real is None or imag is None else torch.complex(real, imag))
        for name in ("r", "bound"):
            self.register_buffer(name, arrays.get(name))

    def forward(self, u: Tensor) -> Tensor:
        if tuple(u.shape[2:]) != self.points:
            raise ValueError(
                f"The grid is {tuple(u.shape[2:])}, but this step was exported for {self.points}."
            )
        axes = tuple(range(2, u.ndim))
        if self.bound is not None:
            bound = self.bound.reshape(-1, *(1,) * len(self.points))
            u = torch.clamp(torch.where(torch.isnan(u), 0.0, u), -bound, bound)
        v = self._inside(torch.fft.rfftn(u, dim=axes, norm="forward"))
        for _ in range(self.inner_steps):
            v = self._advance(v)
        return torch.fft.irfftn(v, s=self.points, dim=axes, norm="forward")

    def _advance(self, v: Tensor) -> Tensor:
        n1 = self._closure(v)
        a = self.decay * v + self.first * n1
        if self.stages == 1:
            return self._inside(a)
        if self.stages == 2:
            c = self.last * (self._closure(self._inside(a)) - n1)
            return self._inside(a + self.T * c)
        half_v = self.half_decay * v
        a2 = self._inside(half_v + self.half_first * n1)
        n2 = self._closure(a2)
        n3 = self._closure(self._inside(half_v + self.half_first * n2))
        n4 = self._closure(self._inside(self.half_decay * a2 + self.half_first * (2 * n3 - n1)))
        c = self.middle * (n2 + n3 - 2 * n1) + self.last * (n4 - n1)
        return self._inside(a + self.T * c)

    def _closure(self, v: Tensor) -> Tensor:
        """n(v) = K v + sum_j P_j q_j(v) + f."""
        n = torch.zeros_like(v) if self.f is None else self.f.expand_as(v)
        if self.K is not None:
            n = n + torch.einsum("ci...,bi...->bc...", self.K, v)
        if self.products:
            axes = tuple(range(2, v.ndim))
            fields = torch.fft.irfftn(
                self.D * v[:, self.factor_channels], s=self.points, dim=axes, norm="forward"
            )
            columns = [torch.stack([fields[:, a] for a in term]).prod(dim=0) for term in self.products]
            q = torch.fft.rfftn(torch.stack(columns, dim=1), dim=axes, norm="forward")
            n = n + torch.einsum("cj...,bj...->bc...", self.P, q)
        return n

    def _inside(self, v: Tensor) -> Tensor:
        """Into the box |Re|, |Im| <= r, then into the disc |v| <= r; the identity inside the disc."""
        if self.r is None:
            return v
        r = self.r
        real, imag = (torch.clamp(torch.where(torch.isnan(x), 0.0, x), -r, r) for x in (v.real, v.imag))
        power = real**2 + imag**2
        outside = power > r**2
        shrink = torch.where(outside, r * torch.rsqrt(torch.where(outside, power, 1.0)), 1.0)
        return torch.complex(shrink * real, shrink * imag)


class Linear(nn.Module):
    """u+^(k) = M(k) u^(k), on the grid it was fitted on."""

    M: Tensor

    def __init__(self, settings: dict, arrays: dict[str, Tensor]):
        super().__init__()
        self.points = tuple(settings["points"])
        self.register_buffer("M", torch.complex(arrays["M.real"], arrays["M.imag"]))

    def forward(self, u: Tensor) -> Tensor:
        if tuple(u.shape[2:]) != self.points:
            raise ValueError(
                f"The grid is {tuple(u.shape[2:])}, but this step was exported for {self.points}."
            )
        axes = tuple(range(2, u.ndim))
        hat = torch.einsum("oi...,bi...->bo...", self.M, torch.fft.rfftn(u, dim=axes))
        return torch.fft.irfftn(hat, s=self.points, dim=axes)


def _affine(v: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W v + b at every point."""
    out = torch.baddbmm(bias[:, None], weight.expand(v.shape[0], *weight.shape), v.flatten(2))
    return out.unflatten(2, v.shape[2:])


def _flat(name: str) -> str:
    # PyTorch keeps dots for submodules.
    return name.replace(".", "_")
