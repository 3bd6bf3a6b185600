"""Two hundred kills at random moments, half of them while a file is written, leave the same results as none.

A round is a store that `sgno run`, or a study, fills in spite of its kills. When it is full it is compared
with an undisturbed one, bit for bit, and the next begins. What happened is kept in `results/kills.json`.
"""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from keep import keep
from kills import Start, check, finish, kill_often, sgno, study

from sgno.lab.store import Store

KILLS = {"sgno run": 150, "study": 50}
# A study takes long to start, so that without a limit no round would ever end.
KILLS_A_ROUND = 10
SEEDS, UPDATES = 2, 1000
SIZES = {
    "--model": "Conv;4;1;relu",
    "--points": 64,
    "--train-samples": 2,
    "--test-samples": 2,
    "--test-steps": 8,
    "--batch": 4,
    "--updates": UPDATES,
    "--seeds": SEEDS,
    # A checkpoint after every dispatch, so that a kill meets them in every state.
    "--checkpoint-seconds": 0,
}


def run(out: Path, cache: Path) -> Start:
    options = (word for pair in SIZES.items() for word in pair)
    return sgno("run", "adv1d", *options, "--out", out, "--cache", cache)


def survive(
    command: Callable[[Path, Path], Start], kills: int, folder: Path, rng: np.random.Generator
) -> dict[str, Any]:
    """Rounds until there were that many kills."""
    cache, whole = folder / "cache", Store(folder / "whole")
    # The first run fills the caches, the second says how long one takes.
    for place in (folder / "first", whole.root):
        seconds = finish(command(place, cache))
    ids = {path.name for path in (whole.root / "jobs").iterdir()}
    assert len(ids) == SEEDS
    moments, compared = [], 0
    for number in itertools.count():
        store = Store(folder / f"round{number}")
        again = command(store.root, cache)
        left = min(kills - len(moments), KILLS_A_ROUND)
        # Short enough that most lives end by a kill, long enough that work is done.
        killed = kill_often(again, store.root, kills=left, longest=0.8 * seconds, rng=rng)
        moments += killed.kills
        if not killed.ended:
            finish(again)
        check(killed, store, whole, ids)
        compared += len(ids)
        leftovers = [path for path in store.root.rglob("*") if path.name.endswith(".part")]
        assert not leftovers and not list((store.root / "checkpoints").glob("*"))
        if len(moments) == kills:
            break
    return {
        "kills": len(moments),
        "while_writing": sum(bool(kill.half_written) for kill in moments),
        "rounds": number + 1,
        "results_compared": compared,
        "results_lost_or_different": 0,
        "undisturbed_seconds": seconds,
        "moments": [kill._asdict() for kill in moments],
    }


def test_two_hundred_kills_leave_every_result_once_and_unchanged(tmp_path):
    rng = np.random.default_rng(0)
    commands = {"sgno run": run, "study": lambda out, cache: study(out, cache, SEEDS, UPDATES)}
    found = {name: survive(commands[name], KILLS[name], tmp_path / name, rng) for name in KILLS}
    total = sum(part["kills"] for part in found.values())
    assert total >= 200
    keep("kills", {"kills": total, "settings": {"seeds": SEEDS, "updates": UPDATES}, **found})
