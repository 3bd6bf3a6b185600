"""The numbers the paper prints, as plain data, to stand beside ours. Nothing here was measured by us.

Source: J. Li, P. Jiang, H. Saleem, Z. Wang, P. Koniusz, F. D. Salim, "Spectral Generator Neural
Operator for Stable Long-Horizon PDE Rollouts". Medians over 50 network seeds in 1D and 20 in 2D and 3D.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

SOURCE = (
    "Li, Jiang, Saleem, Wang, Koniusz and Salim, "
    "“Spectral Generator Neural Operator for Stable Long-Horizon PDE Rollouts”"
)

UPDATES, BATCH_SIZE = 10_000, 20

_NETWORKS = ("conv", "res", "unet", "dil", "fno", "cno", "sgno")


def _row(*values: float | None) -> dict[str, float | None]:
    return dict(zip(_NETWORKS, values, strict=True))


GMEAN100: Mapping[str, Mapping[str, float | None]] = {
    "adv1d": _row(0.0800, 0.2200, 0.1040, 0.0690, 0.0290, 10.8000, 0.0130),
    "diff1d": _row(0.0120, 0.0092, 0.0570, 0.0360, 0.0180, 0.0960, 0.0024),
    "disp1d": _row(0.0300, 0.0340, 0.0820, 0.0590, 0.0310, 0.0110, 0.0008),
    "kdv1d": _row(0.1310, 0.9060, 0.0820, 0.0630, 0.2270, 7.0400, 0.0140),
    "ks1d": _row(0.2990, 0.2670, 0.2070, 0.1580, 0.5980, 0.3740, 0.0294),
    "mixdisp2d": _row(0.0650, 0.0600, 0.0680, 0.0380, 0.2840, 0.0230, 0.0146),
    "kolm2d": _row(0.9460, 0.9490, 0.8360, 0.9760, 0.7290, 2.5810, 0.5560),
    "diagdiff3d": _row(0.1090, 1.0000, 0.1340, 0.1520, 5.3700, None, 0.0260),
    "unbaladv3d": _row(0.3080, 0.1340, 0.1830, 0.2050, 0.8950, None, 0.0220),
    "advdiff3d": _row(1.0000, 0.0820, 0.0750, 0.4870, 0.1110, None, 0.0650),
}
"""Main table, median GMean100. None where the paper prints a dash."""

SGNO_TO_BEST: Mapping[str, float] = {
    "adv1d": 0.467,
    "diff1d": 0.263,
    "disp1d": 0.071,
    "kdv1d": 0.223,
    "ks1d": 0.186,
    "mixdisp2d": 0.649,
    # As printed. The printed 0.556 and 0.729 of the same row give 0.763.
    "kolm2d": 0.722,
    "diagdiff3d": 0.241,
    "unbaladv3d": 0.165,
    "advdiff3d": 0.864,
}
"""Main table, last column: SGNO over the strongest network baseline, from the authors' unrounded values."""


class Spectral(NamedTuple):
    """Ratios SGNO / baseline of the spectral diagnostics; `phase` is None where the paper prints a dash."""

    baseline: str
    state: float
    energy: float
    low: float
    phase: float | None


SPECTRAL: Mapping[str, Spectral] = {
    "adv1d": Spectral("fno", 0.499, 0.396, 0.334, 0.455),
    "diff1d": Spectral("res", 0.247, 0.178, 0.224, None),
    "disp1d": Spectral("cno", 0.071, 0.102, 0.096, 0.115),
    "ks1d": Spectral("dil", 0.139, 0.135, 0.125, None),
    "kolm2d": Spectral("fno", 0.789, 0.815, 0.713, None),
}

ABLATION: Mapping[str, Mapping[str, float]] = {
    "adv1d": {"sgno-unconstrained": 1.360, "sgno-residual": 75.880, "sgno-nocorrection": float("inf")},
    "diff1d": {"sgno-unconstrained": 1.370, "sgno-residual": 265.440, "sgno-nocorrection": 2.870},
    "disp1d": {"sgno-unconstrained": 2.260, "sgno-residual": 198.110, "sgno-nocorrection": 94.830},
    "ks1d": {"sgno-unconstrained": 1.400, "sgno-residual": 27.100, "sgno-nocorrection": 10.500},
    "kolm2d": {"sgno-unconstrained": 1.022, "sgno-residual": 1.564, "sgno-nocorrection": 1.925},
}
"""Variant / full SGNO. Infinity where the paper prints "non-finite"."""

CAPACITY: Mapping[str, tuple[int | None, int | None, int | None]] = {
    "sgno": (30_573, 56_402, 192_827),
    "conv": (31_757, 61_595, 202_489),
    "res": (32_943, 61_179, 202_876),
    "unet": (27_193, 55_661, 200_322),
    "dil": (31_777, 61_699, 192_722),
    "fno": (32_527, 57_787, 196_246),
    "cno": (29_903, 58_717, None),
}
"""Trainable parameters in 1D, 2D and 3D. SGNO's count takes a complex number once; the others are real."""

CONFIGS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "sgno": (
        {"width": 11, "num_modes": 26, "num_blocks": 7},
        {"width": 5, "num_modes": 10, "num_blocks": 9},
        {"width": 10, "num_modes": 6, "num_blocks": 2},
    ),
    "conv": ({"network": "Conv;34;10;relu"}, {"network": "Conv;26;11;relu"}, {"network": "Conv;26;12;relu"}),
    "res": ({"network": "Res;26;8;relu"}, {"network": "Res;26;5;relu"}, {"network": "Res;25;6;relu"}),
    "unet": ({"network": "UNet;12;2;relu"}, {"network": "UNet;10;2;relu"}, {"network": "UNet;11;2;relu"}),
    "dil": ({"network": "Dil;2;32;2;relu"}, {"network": "Dil;2;26;2;relu"}, {"network": "Dil;2;27;2;relu"}),
    "fno": ({"network": "FNO;12;18;4;gelu"}, {"network": "FNO;10;6;4;gelu"}, {"network": "FNO;5;7;4;gelu"}),
}
"""Settings per dimension, under the names our records use."""


HOURS: Mapping[int, Mapping[str, float]] = {
    2: {"sgno": 0.35, "fno": 0.1, "conv": 1, "res": 1, "unet": 1, "cno": 1, "dil": 1.4},
    3: {"sgno": 2, "fno": 0.9, "unet": 11, "cno": 11, "conv": 27, "res": 29, "dil": 31},
}
"""What one seed takes by the paper's budget on two cores of our machine (64², 32³): why it was not run."""


class Transfer(NamedTuple):
    """One row of the resolution-transfer table."""

    gmean100: float
    ratio: float
    stable_step: float


TRANSFER: Mapping[int, Transfer] = {
    64: Transfer(0.5581, 1.000, 13.0),
    128: Transfer(0.5550, 0.995, 14.5),
    256: Transfer(0.5705, 1.022, 14.0),
}
"""kolm2d, SGNO trained at 64², evaluated at N². Stable step at 0.2."""
