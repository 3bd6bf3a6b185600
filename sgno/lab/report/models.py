"""How models are named, ordered and drawn: the same label, colour and dash in every table and figure.

The colours stay apart under the common colour-vision deficiencies, and the dash repeats what the
colour says. Each has a second tone for dark pages.
"""

from typing import NamedTuple

from sgno.registry import describe, model_names

SGNO = "sgno"
LINEAR = "linear"
PERSISTENCE = "persistence"
SGNO_X = "sgno-x"
SGNO_X_START = "sgno-x-start"
ABLATIONS = model_names("ablation", SGNO)


class Look(NamedTuple):
    """Label, colours on light and dark ground, plotly's name of the dash, matplotlib's marker."""

    label: str
    light: str
    dark: str
    dash: str
    marker: str


_LOOKS = {
    "conv": Look("Conv", "#3A9BDC", "#8FD0FF", "dot", "v"),
    "res": Look("Res", "#0A5A9C", "#4C93E6", "dashdot", "^"),
    "unet": Look("U-Net", "#009E73", "#41D9A6", "dash", "s"),
    "dil": Look("Dil", "#8A8A1F", "#CFCB55", "longdash", "D"),
    "fno": Look("FNO", "#4B3FA7", "#A79BFF", "solid", "P"),
    "cno": Look("CNO", "#8E1F5B", "#F27FB2", "longdashdot", "X"),
    "linear": Look("Linear", "#6B6B6B", "#A9A9A9", "dot", "_"),
    "persistence": Look("Persistence", "#9A8F86", "#C9BFB6", "dash", "1"),
    "equation": Look("Equation", "#1B7F3B", "#6CD38B", "solid", "d"),
    "sgno": Look("SGNO", "#D55E00", "#FF8F3F", "solid", "o"),
    "sgno-matched": Look("SGNO matched", "#E69F00", "#FFC95C", "dash", "h"),
    "sgno-x": Look("SGNO-X", "#B5179E", "#FF7AE8", "solid", "*"),
    "sgno-unconstrained": Look("SGNO, free generator", "#CC6677", "#F2A0AE", "dash", "<"),
    "sgno-residual": Look("SGNO, residual update", "#7A4A9E", "#C79BEA", "dashdot", ">"),
    "sgno-pointwise": Look("SGNO, pointwise update", "#5E7CE2", "#A9BBFF", "longdash", "p"),
    "sgno-nocorrection": Look("SGNO, no correction", "#A67C00", "#E3C05B", "dot", "d"),
}
_ORDER = tuple(_LOOKS)
_SPARE = (
    ("#5D4037", "#D0AFA3"),
    ("#00838F", "#5FD9E6"),
    ("#AD1457", "#FF8FB8"),
    ("#33691E", "#A5D66F"),
    ("#283593", "#9FA9FF"),
)


def look(model: str) -> Look:
    """How to draw a model; one that is not known gets a stable colour from its name."""
    if model in _LOOKS:
        return _LOOKS[model]
    light, dark = _SPARE[sum(model.encode()) % len(_SPARE)]
    label = f"SGNO-X {model.removeprefix('sgno-x').lstrip('-')}" if is_sgno_x(model) else model
    return Look(label, light, dark, "longdash", "p")


def label(model: str) -> str:
    return look(model).label


def order(model: str) -> tuple[int, str]:
    """Sort key: the paper's order, then Linear, then the SGNO family; names we do not know before Linear."""
    position = (
        _ORDER.index(model) if model in _ORDER else _ORDER.index(SGNO if is_sgno(model) else LINEAR) - 0.5
    )
    return int(2 * position), model


def is_sgno(model: str) -> bool:
    """SGNO, its ablations, its size-matched version and SGNO-X: none of them is a baseline."""
    return describe(model).family in (SGNO, SGNO_X)


def is_sgno_x(model: str) -> bool:
    return describe(model).family == SGNO_X


def is_variant(model: str) -> bool:
    """SGNO or SGNO-X with a part changed: a row of the ablations, and no rival in the comparison."""
    return describe(model).role in ("ablation", "recipe")


def is_baseline(model: str) -> bool:
    return not is_sgno(model)


def is_network_baseline(model: str) -> bool:
    """A baseline that the paper could have had in its table: neither Linear nor persistence."""
    return describe(model).role == "network"
