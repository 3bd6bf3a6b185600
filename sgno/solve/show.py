"""How results look in a notebook: a line, and a small picture that needs no package to draw it."""

import html
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 320, 90
# Errors beyond these are drawn at the edge.
_LOWEST, _HIGHEST = 1e-8, 10.0


def score_text(score: float | None) -> str:
    return "non-finite" if score is None or not math.isfinite(score) else f"{score:.3g}"


def with_error_curve(text: str, errors: Sequence[float | None]) -> str:
    """HTML: a line of text above the errors of a rollout, step by step, on a logarithmic scale."""
    logs = [
        math.log10(min(max(e, _LOWEST), _HIGHEST))
        if e is not None and math.isfinite(e)
        else math.log10(_HIGHEST)
        for e in errors
    ]
    low, high = math.floor(min(logs, default=0)), math.ceil(max(logs, default=0))
    high = max(high, low + 1)
    across = lambda i: 40 + (_WIDTH - 45) * i / max(1, len(logs) - 1)
    down = lambda v: 5 + (_HEIGHT - 25) * (high - v) / (high - low)
    points = " ".join(f"{across(i):.1f},{down(v):.1f}" for i, v in enumerate(logs))
    label = lambda x, y, s: f'<text x="{x}" y="{y}" font-size="10" fill="currentColor">{s}</text>'
    return (
        f"<div><p>{html.escape(text)}</p>"
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="error against steps">'
        f'<rect x="40" y="5" width="{_WIDTH - 45}" height="{_HEIGHT - 25}" fill="none" stroke="#8888"/>'
        f'<polyline points="{points}" fill="none" stroke="#2166ac" stroke-width="1.5"/>'
        f"{label(4, 14, f'1e{high}')}{label(4, _HEIGHT - 22, f'1e{low}')}"
        f"{label(40, _HEIGHT - 6, f'error, steps 1 to {len(logs)}')}</svg></div>"
    )
