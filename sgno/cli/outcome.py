"""Jobs run under a progress bar, and what the terminal and `--json` say of them."""

from collections.abc import Callable, Sequence
from typing import Any

from sgno.cli.console import console
from sgno.errors import InputError


def check_seeds(seeds: int, first_seed: int) -> None:
    if seeds < 1 or first_seed < 0:
        raise InputError(
            f"--seeds {seeds} --first-seed {first_seed}: use at least one seed, numbered from 0."
        )


def run_shown(job, store, run: Callable[..., dict[str, Any]], trackers: list[str]) -> dict[str, Any]:
    """One job under a progress bar, heard by its trackers. `run` takes the job, the store, `on_progress`."""
    from sgno.cli.progress import training_bar
    from sgno.lab.machine import forget_programs
    from sgno.lab.tracking import numbers_of, tracking

    label = f"{job.task.name} {job.model_name} seed {job.seed}"
    if store.is_finished(job.id):
        return store.record(job.id)
    console.print(f"{label}: preparing data and compiling ...", markup=False)
    forget_programs()
    folder = store.root / "tracking" / job.id
    with (
        tracking(trackers, folder, label, job.to_json()) as heard_by,
        training_bar(label, job.train.updates) as advance,
    ):

        def on_progress(progress) -> None:
            advance(progress)
            for tracker in heard_by:
                tracker.log(progress.update, numbers_of(progress))

        record = run(job, store, on_progress=on_progress)
        for tracker in heard_by:
            tracker.log(job.train.updates, {key: record[key] for key in ("gmean100", "stable_step")})
    if record["diverged_at"] is not None:
        console.print(
            f"{label}: the loss became non-finite at update {record['diverged_at']}.",
            style="yellow",
            markup=False,
        )
    return record


def summary(task: str, model: str, records: Sequence[dict[str, Any]], store) -> dict[str, Any]:
    """Medians over seeds, and where each run is."""
    import numpy as np

    first = records[0]
    per_step = zip(*(record["mean_nrmse"] for record in records), strict=True)
    speeds = [record["seconds_per_update"] for record in records if record["seconds_per_update"] is not None]
    return {
        "task": task,
        "model": model,
        "seeds": [record["job"]["seed"] for record in records],
        "gmean100": median([record["gmean100"] for record in records]),
        "gmean100_per_seed": [record["gmean100"] for record in records],
        "stable_step": float(np.median([record["stable_step"] for record in records])),
        "nonfinite_steps": [record["nonfinite_steps"] for record in records],
        "mean_nrmse": [median(list(step)) for step in per_step],
        "params": first["params"],
        "params_real": first["params_real"],
        "seconds_per_update": float(np.median(speeds)) if speeds else None,
        "versions": first["versions"],
        "run": [str(store.job(record["id"])) for record in records],
    }


def median(values: Sequence[float | None]) -> float | None:
    """The median with a non-finite score counted as worse than any other."""
    import numpy as np

    middle = float(np.median([np.inf if value is None else value for value in values]))
    return middle if np.isfinite(middle) else None


def shown(value: float | None) -> str:
    return "non-finite" if value is None else f"{value:.4g}"


def print_table(found: dict[str, Any], records: Sequence[dict[str, Any]]) -> None:
    """One line a seed, then the median and the size."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(f"{found['task']}, {found['model']}"), title_justify="left")
    for heading in (
        "seed",
        "GMean100",
        "stable step",
        "nRMSE 1 / 100 / last",
        "non-finite steps",
        "ms/update",
    ):
        table.add_column(heading, justify="right")
    for record in records:
        errors = record["mean_nrmse"]
        marks = " / ".join(shown(errors[i]) for i in (0, min(99, len(errors) - 1), -1))
        speed = record["seconds_per_update"]
        table.add_row(
            str(record["job"]["seed"]),
            shown(record["gmean100"]),
            f"{record['stable_step']}",
            marks,
            str(record["nonfinite_steps"]),
            "-" if speed is None else f"{1e3 * speed:.1f}",
        )
    console.print(table)
    console.print(
        f"median GMean100 {shown(found['gmean100'])}, {found['params']:,} parameters "
        f"({found['params_real']:,} real numbers)"
    )
