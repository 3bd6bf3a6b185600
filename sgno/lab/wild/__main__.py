"""`python -m sgno.lab.wild TABLE.json --rows burgers,ks --models linear,exact-dmd`: run rivals on rows.

A record is written after each run; pairs that are in the table already are not run again.
"""

import argparse
import json
import logging
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from sgno.errors import InputError, unknown_name
from sgno.io.files import read_json, write_json
from sgno.lab.wild import rivals, sindy
from sgno.lab.wild.catalogue import WILD, get
from sgno.lab.wild.score import errors, gmean_of, stable_of
from sgno.lab.wild.task import WildTask

RIVALS = {
    "persistence": rivals.persistence,
    "linear": rivals.linear,
    "sgno-x-equation": rivals.equation,
    "sgno-x-start": rivals.sgno_x,
    "exact-dmd": rivals.exact_dmd,
    "opinf": rivals.operator_inference,
    "pysindy": sindy.pde,
    "weak-sindy": sindy.weak,
}
PACKAGES = ("numpy", "scipy", "pysindy", "pydmd", "opinf", "scikit-learn", "jax")


def run_row(task: WildTask, rival: str, *, noise_seed: int = 0) -> dict[str, Any]:
    """Fit a rival to a row's training part and score its closed-loop forecast of the test part.

    **Returns:** a record for JSON. A score that is not finite is stored as a word; a rival that cannot take
    the data has `refused` instead of scores.
    """
    if rival not in RIVALS:
        raise unknown_name("rival", rival, RIVALS)
    data = task.data(noise_seed=noise_seed)
    record: dict[str, Any] = {"row": task.name, "rival": rival, "noise_seed": noise_seed}
    start = time.perf_counter()
    try:
        forecast, chosen = RIVALS[rival](rivals.Problem.of(data))
        fitted = time.perf_counter()
        first, steps = data.test[:, 0].astype(np.float64), data.test.shape[1] - 1
        states = forecast(first, steps, data.test_dt, data.test_inputs)
    except InputError as error:
        return {**record, "refused": str(error)}
    scores = errors(states, data.test[:, 1:])
    return {
        **record,
        "gmean": _plain(gmean_of(scores)),
        "stable_step": stable_of(scores),
        "seconds": {"fit": round(fitted - start, 1), "test": round(time.perf_counter() - fitted, 1)},
        "chosen": json.loads(json.dumps(chosen, default=_plain_number).replace("Infinity", '"inf"')),
    }


def _plain(value: float) -> float | str:
    return float(f"{value:.4g}") if np.isfinite(value) else "inf"


def _plain_number(value: Any) -> Any:
    return value.item()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sgno.lab.wild", description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--rows", default=",".join(WILD), help="names, separated by commas (default: all)")
    parser.add_argument(
        "--models", default=",".join(RIVALS), help="rivals, separated by commas (default: all)"
    )
    parser.add_argument("--noise-seed", type=int, default=0)
    asked = parser.parse_args()
    # The packages warn of ill-conditioned data in every fit, which would hide the results.
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    table: dict[str, Any] = read_json(asked.table) if asked.table.exists() else {"records": []}
    table["versions"] = {name: version(name) for name in PACKAGES}
    done = {(record["row"], record["rival"], record["noise_seed"]) for record in table["records"]}
    for row in asked.rows.split(","):
        for rival in asked.models.split(","):
            if (row, rival, asked.noise_seed) in done:
                continue
            record = run_row(get(row), rival, noise_seed=asked.noise_seed)
            table["records"].append(record)
            write_json(asked.table, table)
            print(row, rival, record.get("gmean", record.get("refused")), flush=True)


if __name__ == "__main__":
    main()
