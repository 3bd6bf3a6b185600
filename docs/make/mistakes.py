"""Thirty mistakes a newcomer makes, made here: `python docs/make/mistakes.py` writes the page.

A test makes them again and compares the answers with the page.
"""

import contextlib
import re
import shlex
import tempfile
import traceback
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

import sgno
from sgno.cli.app import app

PAGE = Path(__file__).parents[1] / "mistakes.md"
_HEAD = """# Thirty mistakes, and the answer each gets

Every wrong input ends in one line that says what came, what was expected and what to do, and exit code 2;
nothing is trained or written before it. The answers below are made by the commands themselves
(`python docs/make/mistakes.py`), and a test makes every mistake again. `burgers.npz` has arrays `train` and
`test` of shape (samples, times, channels, points).
"""
# What went wrong, and how; commands as they are typed, Python as an expression.
MISTAKES = {
    "The command": {
        "A command that is mistyped": "sgno fti burgers.npz",
        "The word of another library": "sgno fit burgers.npz --learning-rate 1e-3",
        "Epochs instead of updates": "sgno fit burgers.npz --epochs 10",
        "A model that is mistyped": "sgno fit burgers.npz --model sgnox",
        "A task that is mistyped": "sgno run ks",
        "A model of the zoo that is mistyped": "sgno zoo ks1d/sgnox",
        "A setting that is mistyped": "sgno fit burgers.npz --model sgno --set widht=8",
        "A setting without a value": "sgno fit burgers.npz --model sgno --set width",
        "A setting that is no number": "sgno fit burgers.npz --model sgno --set width=wide",
        "An empty batch": "sgno fit burgers.npz --model sgno --batch 0",
    },
    "The data": {
        "A file that is not there": "sgno fit burger.npz",
        "A file that holds no arrays": "sgno fit notes.txt",
        "Two arrays, and neither is called u or train": "sgno fit two.npz",
        "No channel axis": "sgno fit nochannel.npy",
        "Channels last, on a square grid": "sgno fit channelslast.npy",
        "A layout with a word of another library": "sgno fit nochannel.npy --layout 'batch time space'",
        "A layout for another number of axes": "sgno fit burgers.npz --layout 'sample time x y'",
        "NaN in the data": "sgno fit nan.npy",
        "Complex numbers": "sgno fit complex.npy",
        "A single frame of each trajectory": "sgno fit oneframe.npy",
        "A name of an array that is not in the file": "sgno fit two.npz --key u",
        "More test trajectories than there are": "sgno fit plain.npy --test 40",
        "A NumPy array without its time axis, in Python": "sgno.fit(np.zeros((20, 64)))",
    },
    "A trained model": {
        "A folder without a run": "sgno evaluate empty --data burgers.npz",
        "States with other channels": "sgno rollout ks1d/sgno --initial two.npy --steps 5 --out r.npz",
        "No steps": "sgno rollout ks1d/sgno --initial u0.npy --steps 0 --out r.npz",
        "An output of another kind": "sgno rollout ks1d/sgno --initial u0.npy --steps 5 --out r.csv",
        "An output inside a file": "sgno export ks1d/sgno-x --to onnx --out notes.txt/step.onnx",
        "Reading terms off a network": "sgno explain ks1d/sgno",
        "A report of nothing": "sgno report empty",
        "A state without channels, in Python": "sgno.rollout(sgno.load('ks1d/sgno'), np.zeros(160), 3)",
        "A name that the zoo does not have, in Python": "sgno.load('ks1d/sgnoo')",
    },
}


def prepare(folder: Path) -> None:
    """The files that the mistakes are made with."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(8, 6, 1, 64)).cumsum(axis=3).astype(np.float32)
    broken = u.copy()
    broken[3, 2] = np.nan
    np.savez(folder / "burgers.npz", train=u, test=u[:2])
    np.savez(folder / "two.npz", velocity=u, pressure=u)
    arrays = {
        "plain": u, "nochannel": u[:, :, 0], "nan": broken, "complex": u + 1j, "oneframe": u[:, :1],
        "channelslast": np.zeros((4, 5, 64, 64, 2), np.float32), "two": np.zeros((2, 160), np.float32),
        "u0": np.zeros((1, 160), np.float32),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "notes.txt").write_text("Tuesday: the pump was off.\n")
    (folder / "empty").mkdir()


def answer(mistake: str) -> str:
    """What the command or the expression says, as one line, with the first of what is known."""
    return re.sub(r"(Known: (?:[^,]+, ){3}).*", r"\1...", _whole_answer(mistake))


def _whole_answer(mistake: str) -> str:
    if not mistake.startswith("sgno "):
        try:
            eval(mistake, {"sgno": sgno, "np": np})
        except sgno.InputError as error:
            return f"InputError: {error}"
        return "no error"
    done = CliRunner().invoke(app, shlex.split(mistake)[1:])
    if done.exit_code != 2:
        trace = "".join(traceback.format_exception(done.exception)) if done.exception else ""
        return f"exit code {done.exit_code}: {done.output} {trace}"
    lines = [line for line in re.sub(r"[╭╮╰╯│─]", " ", done.stderr).splitlines() if line.strip()]
    words = " ".join(" ".join(lines).split()).replace(f"{Path.cwd()}/", "")
    return re.sub(r"^Usage: .*? (?:Try '.*?' for help\. )?(?:Error )", "", words).removeprefix("Error: ")


def answers() -> dict[str, str]:
    """Every mistake, made in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        prepare(Path(folder))
        found = {m: answer(m) for group in MISTAKES.values() for m in group.values()}
    return found


def page() -> str:
    found, lines = answers(), [_HEAD]
    for group, mistakes in MISTAKES.items():
        lines += [f"## {group}", "", "| Mistake | | Answer |", "| --- | --- | --- |"]
        for title, mistake in mistakes.items():
            text = found[mistake].replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
            lines.append(f"| {title} | `{mistake}` | {text} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
