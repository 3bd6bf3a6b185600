"""`sgno rollout`"""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sgno.cli import options
from sgno.cli.console import emit_json, progress_bar, say
from sgno.cli.known import at_time_step, known_inputs
from sgno.cli.trust import say_trust, trust_in
from sgno.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from sgno.engine import Block
    from sgno.solve.monitor import Numbers, Reference
    from sgno.solve.writer import Sink

# Statistics need no more training data than this, and it fits into memory anywhere.
_MOST_BYTES = 512 * 2**20
# What the monitor measures at every kept step, as arrays of the file.
_SIGNALS = ("low", "mid", "high", "distance", "drift", "phase_error")

_watching = partial(typer.Option, rich_help_panel="Monitor")


def rollout(
    weights: options.Weights,
    initial: Annotated[
        Path,
        typer.Option(
            help="Initial states: (channels, *points), (samples, channels, *points), or trajectories, "
            "of which the first frame is taken. npy, npz, HDF5 or zarr."
        ),
    ],
    steps: Annotated[int, typer.Option(help="How many steps to go.")],
    out: Annotated[Path, typer.Option(help="File to write: .npz, .npy, .h5, .hdf5 or .zarr.")],
    every: Annotated[int, typer.Option(help="Keep one state in this many.")] = 1,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Keep energy, max and finite of each kept step, no states.")
    ] = False,
    level: options.Level = 0.2,
    samples: options.Samples = None,
    key: options.Key = None,
    layout: options.Layout = None,
    inputs: options.GivenInputs = None,
    dt: Annotated[
        float | None,
        typer.Option(help="Another time for a step.", show_default="the one it was trained with"),
    ] = None,
    watch: Annotated[
        str | None,
        _watching(
            help="Training trajectories to compare the rollout with: a file, or the name of a task.",
            show_default="not watched",
        ),
    ] = None,
    watch_key: Annotated[
        str | None, _watching(help="Which array of that file.", show_default="train or u")
    ] = None,
    stop_on: Annotated[
        str | None,
        _watching(
            help="End at the first such fault: amplitude, blocking, phase, or several with commas.",
            show_default="go on",
        ),
    ] = None,
    force: options.Force = False,
    cache: options.Cache = None,
    json: options.Json = False,
):
    """Roll a trained model out, however far, and write the states as they come.

    The file holds u of shape (samples, 1 + steps // every, channels, *points), its first frame the initial
    state, and step, the number of each frame's step. With --statistics it holds energy, max and finite of
    shape (samples, 1 + steps // every) instead. States that are not finite are written like others, and the
    first such step is reported. The file appears when it is complete.

    With --watch every step is compared with the training data, and the first signs of amplitude drift,
    spectral blocking and phase drift are reported. The file then also holds the monitor's numbers of each
    kept step, and with --stop-on it ends where a fault began.

    Weights of `sgno fit` and `sgno run` know for how many steps their forecasts stay below --level, and what
    their training was like: it is said when a rollout goes further, or leaves that.
    """
    if steps < 1 or not 1 <= every <= steps:
        raise InputError(
            f"--steps {steps} --every {every}: use at least one step, and keep one state in "
            f"1 to {max(steps, 1)}."
        )
    options.check_at_least(1, samples=samples)
    options.check_writable(out)
    if (stop_on is not None or watch_key is not None) and watch is None:
        raise InputError("--stop-on and --watch-key need --watch: a rollout is watched by training data.")
    from sgno.devices import use_every_core
    from sgno.engine import stream
    from sgno.io.initial import initial_states
    from sgno.lab.zoo import load
    from sgno.nn.conditioned import Conditioned
    from sgno.solve.monitor import Monitor, Statistics
    from sgno.solve.writer import writer

    use_every_core(samples)
    step = load(weights)
    history = step.history if isinstance(step, Conditioned) else 1
    frames, of = initial_states(initial, step.grid, key=key, layout=layout, samples=samples, frames=history)
    u0 = start = frames[:, -1]
    given = known_inputs(step, inputs, initial, key, dt=dt)
    step = at_time_step(step, given, dt)
    if isinstance(step, Conditioned):
        known = step.known(given, of, None, u0.shape[2:]).take(slice(len(u0)), slice(history - 1, None))
        step, start = step.given(known), step.start(frames)
    if u0.shape[2:] != step.grid.points:
        asked, trained = ("x".join(map(str, points)) for points in (u0.shape[2:], step.grid.points))
        say(f"Note: the states have {asked} points, the model was trained on {trained}.")
    known = None if watch is None else _reference(watch, watch_key, layout, cache)
    same_grid = u0.shape[2:] == step.grid.points
    trust = trust_in(weights, u0.shape[1], level, same_grid=same_grid)
    ranges = () if trust is None or trust.observer is None else (trust.observer,)
    wanted = tuple(fault.strip() for fault in (stop_on or "").split(",") if fault.strip())
    observe = (Statistics(), *(() if known is None else (Monitor(known, stop_on=wanted),)), *ranges)
    blocks = stream(step, start, steps, every=every, observe=observe, states=not statistics, batched=True)
    began = time.perf_counter()
    reached = None
    try:
        with writer(out, _specs(u0, steps, every, statistics, out, known is not None), replace=force) as sink:
            for reached in _write(blocks, u0, steps, every, sink):  # noqa: B007 - the last one counts
                pass
    except KeyboardInterrupt:
        done = 0 if reached is None else reached[0].step
        say(f"Interrupted after step {done:,}; {out} was not written.")
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - began
    assert reached is not None
    block, numbers = reached
    done = block.step
    nonfinite_at, *watched = block.memory
    summary = {
        "weights": weights,
        "out": str(out),
        "steps": done,
        "every": every,
        "samples": len(u0),
        "grid": list(u0.shape[1:]),
        "frames": 1 + done // every,
        "nonfinite_samples": int((nonfinite_at > 0).sum()),
        "first_nonfinite_step": [int(t) or None for t in nonfinite_at],
        "last": _last(numbers),
        "seconds": seconds,
        "steps_per_second": done / seconds,
    }
    if watch is not None and known is not None:
        summary["watched"] = _faults(watch, watched[0].first, bool(known.coherent))
        summary["stopped"] = block.stopped
    if trust is not None:
        summary["horizon"] = trust.summary(block.memory[-1][1] if ranges else None, len(u0))
    _say(summary)
    say_trust(trust, summary.get("horizon"), done, same_grid=same_grid)
    if json:
        emit_json(summary)


def _last(numbers: "Numbers") -> dict[str, float] | None:
    """What the last kept states are like, of the samples that are finite."""
    finite = numbers.finite[-1]
    if not finite.any():
        return None
    return {"energy": float(numbers.energy[-1][finite].mean()), "max": float(numbers.max[-1][finite].max())}


def _specs(u0, steps: int, every: int, statistics: bool, out: Path, watched: bool) -> dict[str, Any]:
    from sgno.solve.writer import Spec

    frames, count = 1 + steps // every, len(u0)
    if statistics:
        arrays = {
            "energy": Spec((count, frames)),
            "max": Spec((count, frames)),
            "finite": Spec((count, frames), "bool"),
        }
    else:
        arrays = {"u": Spec((count, frames, *u0.shape[1:]))}
    # An .npy file holds one array; which step a frame is follows from --every.
    if out.suffix == ".npy":
        return arrays
    numbers = {name: Spec((count, frames)) for name in _SIGNALS} if watched else {}
    return {**arrays, **numbers, "step": Spec((frames,), "int64")}


def _write(
    blocks: "Iterable[Block]", u0: "np.ndarray", steps: int, every: int, sink: "Sink"
) -> "Iterable[tuple[Block, Numbers]]":
    """Put every block into the sink as it comes, after the initial states, and yield it with the numbers of
    the last kept states."""
    import jax.numpy as jnp
    import numpy as np

    from sgno.solve.monitor import Numbers, numbers_of

    def put(start: int, states, *seen) -> None:
        count = len(seen[0].energy)
        found = {name: values for each in seen if each for name, values in each._asdict().items()}
        with np.errstate(over="ignore", invalid="ignore"):
            for name in sink.names:
                if name == "u":
                    sink.put(name, start, np.moveaxis(states, 0, 1))
                elif name == "step":
                    sink.put(name, start, every * np.arange(start, start + count))
                else:
                    values = found.get(name, np.full((count, len(u0)), np.nan, np.float32))
                    sink.put(name, start, np.asarray(values).T)

    numbers = Numbers(*(np.asarray(x)[None] for x in numbers_of(jnp.asarray(u0))))
    # The monitor has nothing to say about the start, which it compares with.
    put(0, u0[None], numbers)
    with progress_bar("rollout", steps) as advance:
        for block in blocks:
            if len(block.seen[0].energy):
                put(1 + block.start, block.states, *block.seen)
                numbers = block.seen[0]
            if block.stopped:
                sink.shorten(1 + block.step // every)
            advance(block.step)
            yield block, numbers


def _say(summary: dict[str, Any]) -> None:
    speed = f"{summary['steps_per_second']:,.0f} steps a second"
    say(f"Wrote {summary['out']}: {summary['samples']} sample(s), {summary['frames']:,} frames, {speed}.")
    if summary["nonfinite_samples"]:
        first = min(t for t in summary["first_nonfinite_step"] if t is not None)
        which = f"{summary['nonfinite_samples']} of {summary['samples']} sample(s)"
        say(f"{which} became non-finite, the first at step {first:,}.", style="yellow")
    else:
        say(f"Every state was finite up to step {summary['steps']:,}.")
    if "watched" in summary:
        stopped = f", stopped at step {summary['steps']:,}" if summary["stopped"] else ""
        say(f"Compared with {summary['watched']['data']}{stopped}:")
        _say_faults(summary["watched"], summary["steps"])


def _reference(data: str, key: str | None, layout: str | None, cache: Path | None) -> "Reference":
    """The statistics of training trajectories, from a file or by the name of a task.

    **Raises:** `InputError` if there is neither, or if the trajectories have one time only.
    """
    from sgno.solve.monitor import reference_statistics

    trajectories = _trajectories(data, key, layout, cache)
    if trajectories.shape[1] < 2:
        raise InputError(f"{data} has one time only, so it does not say how states change. Give two or more.")
    return reference_statistics(trajectories)


def _trajectories(data: str, key: str | None, layout: str | None, cache: Path | None) -> "np.ndarray":
    from sgno.io.source import open_source
    from sgno.lab.data.trajectories import default_cache, load_trajectories
    from sgno.lab.tasks import TASKS, get_task

    if not Path(data).exists() and (data in TASKS or data.startswith("apebench:")):
        return load_trajectories(get_task(data), cache or default_cache()).train
    source = open_source(data, key=key, layout=layout, prefer=("train", "u"))
    each = source.nbytes // source.shape[0]
    count = min(source.shape[0], max(1, _MOST_BYTES // max(each, 1)))
    if count < source.shape[0]:
        say(f"Compared with the first {count} of {source.shape[0]} trajectories.")
    return source.read(slice(0, count))


def _faults(data: str, first: "np.ndarray", predictable: bool) -> dict[str, Any]:
    """For the record: when each fault began in each sample, None for never, and whether phases have a law."""
    from sgno.solve.monitor import FAULTS

    began = {fault: [int(t) or None for t in row] for fault, row in zip(FAULTS, first, strict=True)}
    return {"data": data, "phases_predictable": predictable, "first_step": began}


def _say_faults(found: dict[str, Any], steps: int) -> None:
    """One line a fault."""
    for fault, began in found["first_step"].items():
        seen = [t for t in began if t is not None]
        if seen:
            text = f"first at step {min(seen):,}, in {len(seen)} of {len(began)} sample(s)"
        elif fault == "phase" and not found["phases_predictable"]:
            text = "the phases of these data follow no law, so there is nothing to compare with"
        else:
            text = f"not seen up to step {steps:,}"
        say(f"  {fault}: {text}.", style="yellow" if seen else None)
