"""The playground: one page in which models run, with their weights inside and nothing fetched from anywhere.

The models are the ONNX files of the export, run by `onnx.js`, a small reader and runtime of our own.
"""

import base64
import gzip
import html
import json
import tempfile
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from sgno.export.onnx import export_onnx
from sgno.io.commit import write_bytes
from sgno.step import Step

_SCRIPTS = ("product.js", "onnx.js", "play.js")


def write_playground(
    path: Path,
    steps: Mapping[str, Step],
    starts: Sequence[tuple[str, np.ndarray]],
    *,
    title: str,
    about: str,
    version: str,
) -> None:
    """Write the page, whole or not at all.

    **Arguments:**

    - `steps`: steps that carry their grid, by the names that the page shows; those on one grid can be
        compared.
    - `starts`: names and states to start from, `(channels, *points)`; a model offers those of its shape.
    - `about`: a sentence at the foot of the page.

    **Raises:** `InputError` if a step cannot be exported.
    """
    here = files("sgno.export.web")
    content = {
        "models": [
            {"name": name, "shape": list(step.grid.shape), "onnx": _packed(_onnx(step))}
            for name, step in steps.items()
        ],
        "starts": [
            {
                "name": name,
                "shape": list(u.shape),
                "rms": float(np.sqrt(np.mean(np.square(u, dtype=np.float64)))),
                "largest": float(np.abs(u).max()),
                "data": _packed(np.ascontiguousarray(u, "<f4").tobytes()),
            }
            for name, u in starts
        ],
    }
    page = (here / "play.html").read_text("utf-8")
    parts = {
        "title": html.escape(title),
        "about": html.escape(about),
        "version": html.escape(version),
        "style": (here / "play.css").read_text("utf-8"),
        # A name may hold anything; inside a script only "</" could end it.
        "models": json.dumps(content).replace("</", "<\\/"),
        "scripts": "\n".join((here / name).read_text("utf-8") for name in _SCRIPTS),
    }
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text)
    write_bytes(path, [page.encode()])


def _onnx(step: Step) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        export_onnx(path, step, step.grid)
        return path.read_bytes()


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()
