"""Fill the zoo from a folder of finished runs: `python -m sgno.lab.zoo.build results/desk [TASK/MODEL ...]`.

For each task and model the run whose score is the median over seeds is taken, not the best one, so that a
shipped step scores what the table says.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sgno.errors import InputError
from sgno.io.commit import write_bytes
from sgno.io.files import write_json
from sgno.lab.store import Store
from sgno.lab.zoo import shelf

MODELS = ("sgno", "sgno-x")
MOST_BYTES = 20_000_000

Record = dict[str, Any]


def build(root: Path | str, only: Iterable[str] = ()) -> list[shelf.Card]:
    """Put the median run of every task and model on the shelf, and leave the others there as they are.

    `only` are names such as `kolm2d/sgno`; by default all of `MODELS` that the folder has the weights of.

    **Raises:** `InputError` if there is no finished run with weights, or if the shelf would grow too large.
    """
    store = Store(root)
    only = tuple(only)
    asked = lambda name: name in only if only else name.split("/")[-1] in MODELS
    chosen = {name: median_run(runs) for name, runs in _groups(store).items() if asked(name)}
    if missing := [name for name in only if name not in chosen] or (() if chosen else MODELS):
        raise InputError(f"{root} holds no finished runs of {', '.join(missing)} with their weights.")
    kept = [shelf.weights_path(name) for name in shelf.names() if name not in chosen]
    new = [store.weights(run["id"]) for run, _ in chosen.values()]
    total = sum(path.stat().st_size for path in (*kept, *new))
    if total > MOST_BYTES:
        raise InputError(
            f"The zoo would take {total / 1e6:.1f} MB, but at most {MOST_BYTES / 1e6:.0f} MB are shipped. "
            "Leave out some models."
        )
    return [_put(name, store, run, runs) for name, (run, runs) in sorted(chosen.items())]


def median_run(runs: list[Record]) -> tuple[Record, list[Record]]:
    """The run with the median score (the better one of two in the middle), and all runs by seed."""
    by_score = sorted(runs, key=lambda r: (_score(r), r["job"]["seed"]))
    return by_score[(len(runs) - 1) // 2], sorted(runs, key=lambda r: r["job"]["seed"])


def _score(run: Record) -> float:
    return float("inf") if run["gmean100"] is None else run["gmean100"]


def _groups(store: Store) -> dict[str, list[Record]]:
    """Runs with weights by `TASK/MODEL`, of the one setting that was trained longest, then on most seeds."""
    settings: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for run in store.records():
        job = run["job"]
        if store.weights(run["id"]).is_file():
            apart_from_seed = {key: job[key] for key in ("task", "model", "train")}
            text = json.dumps(apart_from_seed, sort_keys=True)
            settings[f"{job['task']['name']}/{job['model_name']}"][text].append(run)
    effort = lambda runs: (runs[0]["job"]["train"]["updates"], len(runs))
    return {name: max(found.values(), key=effort) for name, found in settings.items()}


def _put(name: str, store: Store, run: Record, runs: list[Record]) -> shelf.Card:
    source, target = store.weights(run["id"]), shelf.weights_path(name)
    card = shelf.Card(
        name=name,
        **{key: run["job"][key] for key in ("task", "model", "train", "seed")},
        seeds=[r["job"]["seed"] for r in runs],
        gmean100_per_seed=[r["gmean100"] for r in runs],
        job=run["id"],
        bytes=source.stat().st_size,
        sha256=shelf.sha256(source),
        persistence=next((r["gmean100"] for r in store.records() if _is_persistence(r, run)), None),
        **{
            key: run[key]
            for key in ("gmean100", "stable_step", "params", "params_real", "data", "versions", "finished")
        },
    )
    write_bytes(target, [source.read_bytes()])
    write_json(shelf.card_path(name), card.to_json())
    return card


def _is_persistence(record: Record, run: Record) -> bool:
    return record["job"]["model_name"] == "persistence" and record["data"] == run["data"]


def main(arguments: list[str]) -> int:
    if not arguments:
        print("Usage: python -m sgno.lab.zoo.build RESULTS [TASK/MODEL ...]", file=sys.stderr)
        return 2
    try:
        built = build(arguments[0], arguments[1:])
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    for card in built:
        if card.warning:
            print(card.warning, file=sys.stderr)
        print(f"{card.name}: seed {card.seed} of {card.seeds}, GMean100 {card.score}, {card.bytes} bytes")
    size = sum(shelf.weights_path(name).stat().st_size for name in shelf.names())
    print(f"{len(shelf.names())} models, {size / 1e6:.2f} MB in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
