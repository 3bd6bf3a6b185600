"""Make a store small: records stay, curves are packed, one seed of each setting keeps its sample."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgno.errors import InputError
from sgno.io.files import load_arrays, save_arrays, stored
from sgno.lab.compact import encode, error_codes
from sgno.lab.report.fields import load_prediction, load_truth
from sgno.lab.report.groups import compare
from sgno.lab.report.runs import Run, read_store
from sgno.lab.store import CURVES, SAMPLE, Store
from sgno.lab.tracking import METRICS

_MOST_LOSSES = 200
_EVERY = 10


class Thinned(NamedTuple):
    """Sizes in bytes of all files of the store."""

    before: int
    after: int


def thin(root: Path | str) -> Thinned:
    """Pack what a report shows and drop the rest; a store that is thin already stays as it is.

    Records, scores, ids and weights do not change. Errors of single trajectories stay at every tenth step,
    the loss at two hundred updates; spectra and the sample of a test trajectory stay for one seed of each
    setting, the speed over time (`metrics.jsonl`) goes.

    **Raises:** `InputError` if there is no store or nothing in it.
    """
    store = Store(root)
    runs = read_store(root).runs
    before = _size(store.root)
    keep = {group.first.id for group in compare(runs).groups}
    # Spectra of the reference are the same in all runs on the same data.
    reference = {run.id for run in {run.data: run for run in reversed(runs) if run.id in keep}.values()}
    for run in runs:
        _thin_curves(store, run, spectrum=run.id in keep, reference=run.id in reference)
        if run.id in keep:
            _thin_sample(store, run)
        else:
            store.sample(run.id).unlink(missing_ok=True)
        (store.job(run.id) / METRICS).unlink(missing_ok=True)
    # Last: errors are made from the truth in full.
    for run in {run.data: run for run in runs}.values():
        _thin_truth(store, run)
    return Thinned(before, _size(store.root))


def _size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def _thin_curves(store: Store, run: Run, *, spectrum: bool, reference: bool) -> None:
    try:
        file = load_arrays(stored(store.job(run.id) / CURVES))
        if "compact" in file.meta:
            return
        curves = dict(file.arrays)
        curves["losses"] = curves["losses"][:: -(-len(curves["losses"]) // _MOST_LOSSES) or 1]
        for name in ("nrmse", "correlation"):
            # The mean over trajectories is in the record, at every step.
            curves[name] = curves[name][_EVERY - 1 :: _EVERY]
    except (InputError, KeyError):
        return
    kept = {"spectrum": spectrum, "reference_spectrum": reference}
    curves = {name: array for name, array in curves.items() if array.size and kept.get(name, True)}
    kinds = {name: "unit" if name == "correlation" else "decades" for name in curves}
    _replace(store.job(run.id) / CURVES, {"id": run.id, "every": _EVERY}, curves, kinds)


def _thin_sample(store: Store, run: Run) -> None:
    try:
        if "compact" in load_arrays(store.sample(run.id)).meta:
            return
        truth, prediction = load_truth(store, run), load_prediction(store, run)
    except InputError:
        return
    if prediction.values.shape != truth.values.shape:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        codes = error_codes(prediction.values - truth.values, truth.amplitude)
    meta = {"id": run.id, "amplitude": truth.amplitude}
    _replace(store.job(run.id) / SAMPLE, meta, {"errors": codes}, {"errors": "error"})


def _thin_truth(store: Store, run: Run) -> None:
    try:
        path = store.truth(run.data)
        file = load_arrays(path)
        load_truth(store, run)
    except InputError:
        return
    if "compact" not in file.meta:
        # The first channel is what pictures show.
        states = {"states": file.arrays["states"][:, :1]}
        _replace(path.with_suffix(Path(SAMPLE).suffix), file.meta, states, {"states": "field"})


def _replace(path: Path, meta: Mapping, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str]) -> None:
    """Write `path`, and remove the file of version 0.1 that it takes the place of."""
    settings, packed = encode(arrays, kinds)
    older = stored(path)
    save_arrays(path, {**meta, **settings}, packed)
    if older != path:
        older.unlink(missing_ok=True)
