"""`sgno tasks`, `sgno models`, `sgno zoo`, `sgno example`: what there is to choose from."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import answers, emit_json, say, show_table
from sgno.errors import InputError

# Parameters as the paper counts them and in real numbers, for one channel on the grids of `GRIDS`. Counting
# them here would take longer than all the rest; a test does it.
GRIDS = {1: (160,), 2: (64, 64), 3: (32, 32, 32)}
# fmt: off
PARAMETERS = {
    "sgno": ((30_573, 52_595), (56_402, 101_402), (192_827, 365_627)),
    "sgno-matched": ((18_338, 30_974), (31_742, 56_742), (98_558, 183_230)),
    "sgno-unconstrained": ((30_573, 52_595), (56_402, 101_402), (192_827, 365_627)),
    "sgno-residual": ((28_263, 50_285), (47_222, 92_222), (175_467, 348_267)),
    "sgno-nocorrection": ((4_778, 4_778), (10_277, 10_277), (19_127, 19_127)),
    "sgno-pointwise": ((6_241, 6_241), (2_222, 2_222), (2_667, 2_667)),
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
    "equation": ((0, 0),) * 3,  # its terms are found with the data
    "linear": ((162, 162), (4_224, 4_224), (34_816, 34_816)),
    "persistence": ((0, 0), (0, 0), (0, 0)),
}
# fmt: on


def tasks(json: options.Json = False):
    """List the ten tasks. Any other APEBench scenario works too, as apebench:NAME;key=value."""
    from sgno.lab.tasks import CARDS, TASKS

    if json:
        emit_json({"tasks": [{**task.to_json(), **CARDS[name]._asdict()} for name, task in TASKS.items()]})
        return
    rows = [
        (
            name,
            _grid(task.num_points, task.num_spatial_dims),
            f"{CARDS[name].regime}: {CARDS[name].mechanism}",
            CARDS[name].equation,
            f"{task.num_train_samples} x {task.train_steps} steps",
            f"{task.num_test_samples} x {task.test_steps} steps",
        )
        for name, task in TASKS.items()
    ]
    headings = ("name", "grid", "regime", "equation", "train", "test")
    show_table(
        answers,
        "Tasks",
        headings,
        rows,
        left=headings,
        drop=("train", "test", "regime", "grid"),
        caption="Any other APEBench scenario: sgno run 'apebench:diff_burgers;num_points=96'",
    )


def models(
    name: Annotated[str | None, typer.Argument(help="Show the settings and sizes of this model.")] = None,
    dim: Annotated[
        int | None,
        typer.Option(help="Sizes in this number of dimensions: 1, 2 or 3.", show_default="no sizes"),
    ] = None,
    json: options.Json = False,
):
    """List the models; with --dim their parameters too, with NAME the settings of one.

    "params" counts a complex number once, as the paper does; "real" counts real numbers.
    """
    if dim is not None and dim not in GRIDS:
        raise InputError(f"--dim {dim} must be 1, 2 or 3.")
    from sgno.errors import unknown_name
    from sgno.registry import MODELS

    if name is not None and name not in MODELS:
        raise unknown_name("model", name, MODELS)
    if name is None and dim is None and not json:
        rows = [(known, _summary(entry)) for known, entry in MODELS.items()]
        more = "sgno models NAME shows one. Any APEBench network works too: --model 'MoRes;26;8;relu'"
        show_table(answers, "Models", ("name", "what it is"), rows, text=("what it is",), caption=more)
        return
    found = _sizes([name] if name else list(MODELS), [dim] if dim else list(GRIDS))
    if json:
        emit_json({"models": found})
    elif name is not None:
        say(f"{name}: {_summary(MODELS[name])}", to=answers)
        for row in found:
            settings = ", ".join(f"{k}={v}" for k, v in row["settings"].items() if k != "kind")
            sizes = f"{row['params']:,} parameters ({row['params_real']:,} real numbers)"
            say(f"{row['dim']}D: {sizes}\n  {settings or 'no settings'}", to=answers)
    else:
        numbers = lambda row: [f"{row[key]:,}" for key in ("params", "params_real")]
        rows = [(row["name"], *numbers(row), row["summary"]) for row in found]
        headings = ("name", "params", "real", "what it is")
        show_table(
            answers, f"Models in {dim}D", headings, rows, text=headings[3:], drop=("what it is", "real")
        )


def _sizes(names: list[str], dims: list[int]) -> list[dict[str, Any]]:
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
            "summary": _summary(entry),
        }
        for dim in dims
        for name in names
        if dim in (entry := MODELS[name]).settings
    ]


def _summary(entry: Any) -> str:
    return f"{entry.role}: {entry.summary}" if entry.role == "ablation" else entry.summary


def example(
    out: Annotated[Path, typer.Argument(metavar="FILE.npz", help="The file to write.")],
    of: Annotated[
        str,
        typer.Option(help="A row of the wild suite: burgers, burgers-noise5, ks, gray-scott-2d ..."),
    ] = "burgers",
    force: options.Force = False,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """Write a small file of trajectories to try the other commands on.

    Arrays `train` and `test` of shape (samples, times, channels, *points), made in seconds by a solver that
    has nothing to do with our models: Burgers' equation, or another row of the wild suite, noisy ones too.
    """
    if out.suffix != ".npz":
        raise InputError(f"{out} must end in .npz: it holds two arrays, train and test.")
    options.check_writable(out)
    if out.exists() and not force:
        raise InputError(f"{out} exists already. Choose another name, or add --force to replace it.")
    import io

    import numpy as np

    from sgno.io.commit import write_bytes
    from sgno.lab.wild import get

    task = get(of)
    data = task.data(cache=cache)
    content = io.BytesIO()
    np.savez(content, train=data.train, test=data.test)
    write_bytes(out, [content.getvalue()])
    say(f"{out}: {task.description}. train {data.train.shape}, test {data.test.shape}, dt {task.dt:g}.")
    inputs = ", ".join(data.train_inputs)
    if inputs:
        say(f"Its known inputs ({inputs}) are left out: as in life, when nobody has measured them.")
    if json:
        emit_json({"out": str(out), "task": of, "train": data.train.shape, "test": data.test.shape})


def zoo(
    name: Annotated[str | None, typer.Argument(help="Show one card, for example ks1d/sgno-x.")] = None,
    json: options.Json = False,
):
    """List the trained models that come with the package.

    Their names work wherever WEIGHTS is asked for, and in Python as sgno.load("ks1d/sgno-x").
    """
    from sgno.lab.zoo import shelf as shelf

    cards = shelf.cards() if name is None else [shelf.card(name)]
    if json:
        emit_json({"zoo": [card.to_json() for card in cards]})
    elif name is not None:
        _show_card(cards[0])
    else:
        rows = [
            (
                card.name,
                _grid(card.task["num_points"], card.task["num_spatial_dims"]),
                card.score,
                f"{card.stable_step} of {card.task['test_steps']}",
                f"{card.seed} of {len(card.seeds)}",
                f"{card.train['updates']:,}",
                f"{card.params_real:,}",
                f"{card.bytes / 1000:.0f}",
            )
            for card in cards
        ]
        show_table(
            answers,
            "Zoo",
            ("name", "grid", "GMean100", "stable step", "seed", "updates", "real numbers", "kB"),
            rows,
            left=("grid",),
            drop=("kB", "seed", "updates", "real numbers", "grid", "stable step"),
            caption='sgno rollout ks1d/sgno-x ..., or sgno.load("ks1d/sgno-x") in Python',
        )


def _show_card(card: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    others = ", ".join("non-finite" if score is None else f"{score:.3g}" for score in card.gmean100_per_seed)
    grid = _grid(card.task["num_points"], card.task["num_spatial_dims"])
    settings = {key: value for key, value in card.model.items() if key != "kind"}
    facts = {
        "score": f"GMean100 {card.score}, error below 20 % for {card.stable_step} of "
        f"{card.task['test_steps']} steps",
        "seeds": f"seed {card.seed} has the median score of {len(card.seeds)}: {others}",
        "task": f"{card.task['name']} on {grid} points",
        "model": f"{card.model['kind']}: " + ", ".join(f"{k}={v}" for k, v in settings.items()),
        "size": f"{card.params:,} parameters ({card.params_real:,} real numbers), {card.bytes / 1000:.0f} kB",
        "training": ", ".join(f"{key}={value}" for key, value in card.train.items()),
        "made": f"{card.finished[:10]} with " + ", ".join(f"{k} {v}" for k, v in card.versions.items()),
        "sha256": card.sha256,
        "use": f'sgno rollout {card.name} ..., or sgno.load("{card.name}") in Python',
    }
    lines = Table.grid(padding=(0, 2))
    for key, fact in facts.items():
        lines.add_row(Text(key, style="bold"), fact)
    answers.print(Text(card.name, style="bold"), lines, sep="\n")


def _grid(points: int, dims: int) -> str:
    return "x".join([str(points)] * dims)
