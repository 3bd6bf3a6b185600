"""`sgno models`"""

from typing import Annotated

import typer

from sgno.cli.console import answers, emit_json
from sgno.errors import InputError


def models(
    dim: Annotated[
        int | None, typer.Option(help="Only this number of spatial dimensions: 1, 2 or 3.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
):
    """List the models with their settings and parameters, counted both ways.

    "params" counts a complex number once, as the paper does; "real" counts real numbers.
    """
    if dim is not None and dim not in (1, 2, 3):
        raise InputError(f"--dim {dim} must be 1, 2 or 3.")
    rows = _rows([dim] if dim else [1, 2, 3])
    if json:
        emit_json({"models": rows})
        return
    from rich.table import Table

    table = Table(
        title="Models", caption="Any APEBench network works too, for example --model 'MoRes;26;8;relu'"
    )
    for heading in ("name", "dim", "settings", "params", "real", "what it is"):
        table.add_column(heading, justify="right" if heading in ("params", "real") else "left")
    for row in rows:
        settings = ", ".join(f"{k}={v}" for k, v in row["settings"].items() if k != "kind")
        numbers = (f"{row[key]:,}" for key in ("params", "params_real"))
        summary = f"{row['role']}: {row['summary']}" if row["role"] == "ablation" else row["summary"]
        table.add_row(row["name"], f"{row['dim']}D", settings, *numbers, summary)
    answers.print(table)


# Parameters as the paper counts them and in real numbers, for one channel on the grids of `GRIDS`. Counting
# them here would take longer than all the rest; a test does it.
GRIDS = {1: (160,), 2: (64, 64), 3: (32, 32, 32)}
# fmt: off
PARAMETERS = {
    "sgno": ((30_573, 52_595), (56_402, 101_402), (192_827, 365_627)),
    "sgno-matched": ((18_338, 30_974), (31_742, 56_742), (98_558, 183_230)),
    "sgno-unconstrained": ((30_573, 52_595), (56_402, 101_402), (192_827, 365_627)),
    "sgno-residual": ((28_263, 50_285), (47_222, 92_222), (175_467, 348_267)),
    "sgno-pointwise": ((6_241, 6_241), (2_222, 2_222), (2_667, 2_667)),
    "sgno-nocorrection": ((4_778, 4_778), (10_277, 10_277), (19_127, 19_127)),
    "conv": ((31_757, 31_757), (61_595, 61_595), (202_489, 202_489)),
    "res": ((32_943, 32_943), (61_179, 61_179), (202_876, 202_876)),
    "unet": ((27_193, 27_193), (55_661, 55_661), (200_322, 200_322)),
    "dil": ((31_777, 31_777), (61_699, 61_699), (197_722, 197_722)),
    "fno": ((32_527, 32_527), (57_787, 57_787), (196_246, 196_246)),
    "cno": ((29_903, 29_903), (58_717, 58_717), (202_567, 202_567)),
    "sgno-x": ((162, 243), (4_224, 6_336), (34_816, 52_224)),
    "sgno-x-start": ((162, 243), (4_224, 6_336), (34_816, 52_224)),
    "sgno-x-real": ((162, 162), (4_224, 4_224), (34_816, 34_816)),
    "sgno-x-cold": ((1_072, 2_063), (23_784, 45_456), (217_400, 417_392)),
    "sgno-x-onestage": ((162, 243), (4_224, 6_336), (34_816, 52_224)),
    "sgno-x-noclosure": ((162, 243), (4_224, 6_336), (34_816, 52_224)),
    "sgno-x-untrapped": ((162, 243), (4_224, 6_336), (34_816, 52_224)),
    "linear": ((162, 162), (4_224, 4_224), (34_816, 34_816)),
}
# fmt: on


def _rows(dims: list[int]) -> list[dict]:
    from sgno.registry import MODELS

    return [
        {
            "name": name,
            "dim": dim,
            "role": entry.role,
            "family": entry.family,
            "settings": entry.config(dim).to_json(),
            "params": PARAMETERS[name][dim - 1][0],
            "params_real": PARAMETERS[name][dim - 1][1],
            "summary": entry.summary,
        }
        for dim in dims
        for name, entry in MODELS.items()
    ]
