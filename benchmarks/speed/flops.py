"""How much arithmetic one SGNO update needs, whatever the way it is written."""

import math

from sgno.nn.sgno import PROJECTION_WIDTH, SGNOConfig


def update_flops(config: SGNOConfig, points: tuple[int, ...], batch: int, num_channels: int = 1) -> float:
    """Floating-point operations of a forward and a backward pass.

    Counted are the products of the pointwise maps and mixers, two for a multiplication and its addition, and
    `2.5 N log2 N` per real FFT of `N` points; activations, norms and recomputation are not, so a share of
    the machine's rate computed from it is on the low side. The backward pass has each product twice.
    """
    d, n = len(points), math.prod(points)
    width, modes = config.width, 2 ** (len(points) - 1) * config.num_modes ** len(points)
    coordinates = {"none": 0, "ends": d, "periodic": 2 * d}[config.coordinates]
    lift = 2 * (num_channels + coordinates) * width
    pointwise = 2 * (width * width + 2 * width * 2 * width)
    head = 2 * PROJECTION_WIDTH * (width + num_channels)
    mixer = 8 * width * width * modes
    transforms = 3 * width * 2.5 * n * math.log2(n)
    forward = n * (lift + head) + config.num_blocks * (n * pointwise + mixer + transforms)
    return 3.0 * batch * forward
