"""Training and rollout of the PyTorch reference, by the protocol that `sgno` follows."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.torch_sgno import SGNO

WARMUP, TOTAL, PEAK = 2_000, 10_000, 1e-3


def learning_rate(update: int) -> float:
    """Linear warm-up to 1e-3 over 2,000 updates, then a cosine to 0 at 10,000."""
    if update < WARMUP:
        return PEAK * update / WARMUP
    return PEAK * 0.5 * (1 + math.cos(math.pi * (update - WARMUP) / (TOTAL - WARMUP)))


def training_update(model: SGNO, *, compiled: bool = False) -> Callable[[Tensor, Tensor], Tensor]:
    """One Adam update on the one-step mean squared error: `update(u, target) -> loss`.

    **Arguments:**

    - `model`: changed in place.
    - `compiled`: let `torch.compile` fuse the real pointwise parts; needs a C++ compiler and minutes.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=PEAK)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda i: learning_rate(i) / PEAK)
    step = torch.compile(model) if compiled else model

    def update(u: Tensor, target: Tensor) -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss = F.mse_loss(step(u), target)
        loss.backward()
        optimiser.step()
        schedule.step()
        return loss.detach()

    return update


@torch.inference_mode()
def rollout(model: SGNO, u: Tensor, num_steps: int) -> Tensor:
    """The state after `num_steps` steps; the coefficients are computed once, not once per step."""
    coefficients = model.coefficients()
    for _ in range(num_steps):
        u = model(u, coefficients)
    return u
