"""From a case to the work itself: a function that repeats it and ticks after each repeat.

Imports happen in `load`, before the memory baseline is taken; data and weights are made inside the work.
"""

import dataclasses
import importlib
import time
from collections.abc import Callable
from typing import cast

from benchmarks.speed.cases import Case
from sgno.devices import cores

Tick = Callable[[int], None]
# A repeat should last about this long, so that the clock and the dispatch do not matter.
REPEAT_SECONDS = 0.7
MANY_UPDATES = 50_000
EPOCH_BATCHES = 10


class MissingSubject(Exception):
    """The subject is not installed here."""


def load(case: Case) -> Callable[[Tick], None]:
    """Import what the case needs and return its work.

    **Raises:** `MissingSubject` if it needs something that is not installed.
    """
    if case.loop == "torch":
        return _torch(case)
    if case.loop == "sgno" and case.work != "matmul":
        from sgno.devices import use_every_core

        use_every_core(case.batch)
    if case.work == "matmul":
        return _matmul(case)
    if case.loop == "solver":
        return _solver(case)
    if case.work == "rollout":
        return _rollout(case)
    if case.work in ("coefficients", "capped coefficients"):
        return _coefficients(case)
    if case.loop == "trainax":
        return _trainax_update(case)
    return _update(case)


def repeat_many(times: Callable[[int], object], tick: Tick) -> None:
    """Tick after one time, then after as many times as last about a second; `times(n)` does it n times."""
    count = 1
    while True:
        start = time.perf_counter()
        times(count)
        seconds = time.perf_counter() - start
        tick(count)
        count = max(1, min(1000, round(count * REPEAT_SECONDS / seconds)))


def repeat(once: Callable[[], object], tick: Tick) -> None:
    """`repeat_many` of a single call."""

    def times(count: int) -> None:
        for _ in range(count):
            once()

    repeat_many(times, tick)


def _build(case: Case):
    """A fresh step for the case."""
    import jax

    from sgno.grid import Grid
    from sgno.registry import get_model

    config = dataclasses.replace(get_model(case.model, case.num_spatial_dims), **dict(case.settings))
    return config.build(Grid(1, case.points), key=jax.random.PRNGKey(0))


def _trajectories(case: Case, batches: int = 1):
    """Batches of smooth states and of those that follow; what they are does not change the time."""
    import numpy as np

    phase = np.random.default_rng(0).uniform(
        0, 2 * np.pi, (batches * case.batch, 1, 1, *(1,) * len(case.points))
    )
    angles = [2 * np.pi * np.arange(n) / n for n in case.points]
    wave = sum(
        np.sin(a).reshape([-1 if i == j else 1 for j in range(len(case.points))])
        for i, a in enumerate(angles)
    )
    return np.broadcast_to(np.sin(wave + phase), (batches * case.batch, 2, 1, *case.points)).astype(
        np.float32
    )


def _update(case: Case) -> Callable[[Tick], None]:
    """The training loop."""
    import jax

    from sgno.training import Progress, train

    def work(tick: Tick) -> None:
        done = 0

        def on_progress(progress: Progress) -> None:
            nonlocal done
            done, before = progress.update, done
            tick(done - before)

        # As much data as the other side has: PyTorch's update one batch, APEBench's trainer ten to shuffle.
        data = _trajectories(case, 1 if case.model == "sgno" else EPOCH_BATCHES)
        train(
            _build(case),
            data,
            updates=MANY_UPDATES,
            batch_size=case.batch,
            warm_start=False,
            key=jax.random.PRNGKey(1),
            on_progress=on_progress,
        )

    return work


def _trainax_update(case: Case) -> Callable[[Tick], None]:
    """The trainer that APEBench makes for `train_config="one"`, called once for one network.

    APEBench maps it over the seeds even when there is one, which took longer: left out here.
    """
    import apebench
    import equinox as eqx
    import jax
    import trainax

    from sgno.nn.apebench import ApebenchConfig
    from sgno.registry import get_model
    from sgno.training import default_optimizer

    def work(tick: Tick) -> None:
        before, count, begun = 0, 1, time.perf_counter()

        def callback(update: int, stepper, data) -> dict:
            nonlocal before, count, begun
            del data
            if update - before == count:
                jax.block_until_ready(eqx.filter(stepper, eqx.is_array))
                seconds = time.perf_counter() - begun
                tick(count)
                before, count = update, max(1, min(1000, round(count * REPEAT_SECONDS / seconds)))
                begun = time.perf_counter()
            return {}

        trainer = trainax.trainer.SupervisedTrainer(
            _trajectories(case, EPOCH_BATCHES),
            optimizer=default_optimizer(10_000),
            num_training_steps=MANY_UPDATES,
            batch_size=case.batch,
            num_rollout_steps=1,
            callback_fn=callback,  # pyright: ignore[reportArgumentType]
        )
        # APEBench's network as APEBench makes it; any advection scenario makes the same one.
        scenario = apebench.scenarios.scenario_dict["diff_adv"](
            num_spatial_dims=case.num_spatial_dims, num_points=case.points[0]
        )
        config = cast(ApebenchConfig, get_model(case.model, case.num_spatial_dims))
        network = scenario.get_network(config.network, jax.random.PRNGKey(0))
        trainer(network, jax.random.PRNGKey(1), record_loss_every=100, spawn_tqdm=False)

    return work


def _rollout(case: Case) -> Callable[[Tick], None]:
    import jax

    from sgno.engine import advance

    def work(tick: Tick) -> None:
        step, u = _build(case), jax.numpy.asarray(_trajectories(case)[:, 0])
        repeat(lambda: jax.block_until_ready(advance(step, u, case.timed_steps)), tick)

    return work


def _solver(case: Case) -> Callable[[Tick], None]:
    """exponax's reference stepper of a task, as APEBench sets it up."""
    import apebench
    import exponax
    import jax

    from sgno.lab.tasks import get_task

    def work(tick: Tick) -> None:
        task = get_task(case.model)
        scenario = apebench.scenarios.scenario_dict[task.scenario](
            num_spatial_dims=task.num_spatial_dims, num_points=case.points[0], **dict(task.settings)
        )
        advance = jax.jit(jax.vmap(exponax.repeat(scenario.get_ref_stepper(), case.timed_steps)))
        u = jax.numpy.asarray(_trajectories(case)[:, 0])
        repeat(lambda: jax.block_until_ready(advance(u)), tick)

    return work


def _coefficients(case: Case) -> Callable[[Tick], None]:
    """SGNO's coefficients and the gradient through them.

    Many in one program, as in training: calling a program with a hundred arrays takes longer than this.
    """
    import jax

    from benchmarks.speed.coefficients import capped, gradient, many
    from sgno.devices import replicate

    def work(tick: Tick) -> None:
        step = _build(case)
        # Where training has them: on every device.
        change, weights = gradient(replicate(capped(step) if case.work == "capped coefficients" else step))
        program = many(change)
        repeat_many(lambda count: jax.block_until_ready(program(weights, count)), tick)

    return work


def _matmul(case: Case) -> Callable[[Tick], None]:
    """A square float32 matrix product by XLA."""
    import jax

    def work(tick: Tick) -> None:
        a = jax.random.normal(jax.random.PRNGKey(0), (case.points[0],) * 2)
        product = jax.jit(lambda a: a @ a)
        repeat(lambda: product(a).block_until_ready(), tick)

    return work


def _torch(case: Case) -> Callable[[Tick], None]:
    """The PyTorch reference implementation beside this package."""
    try:
        import torch
    except ImportError as error:
        raise MissingSubject("torch is not installed; install the extra 'bench'") from error
    try:
        writing = importlib.import_module("benchmarks.torch_sgno")
        loop = importlib.import_module("benchmarks.torch_loop")
    except ImportError as error:
        raise MissingSubject(
            "the PyTorch reference implementation is not here; run from a checkout of sgno"
        ) from error
    torch.set_num_threads(len(cores()))

    def work(tick: Tick) -> None:
        torch.manual_seed(0)
        settings = writing.paper(case.num_spatial_dims, pointwise=case.model, **dict(case.settings))
        model = writing.SGNO(settings)
        states = torch.from_numpy(_trajectories(case))
        u, target = states[:, 0].contiguous(), states[:, 1].contiguous()
        if case.work == "rollout":
            repeat(lambda: loop.rollout(model, u, case.timed_steps), tick)
        update = loop.training_update(model)
        repeat(lambda: update(u, target), tick)

    return work
