"""The package's SGNO against an independent implementation in PyTorch, from the same weights."""

from dataclasses import asdict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from benchmarks.torch_loop import learning_rate, rollout, training_update
from benchmarks.torch_sgno import SGNO as TorchSGNO
from benchmarks.torch_sgno import Settings, dump_numpy, load_numpy, paper
from sgno.grid import Grid
from sgno.nn.sgno import SGNO, SGNOConfig
from sgno.step import batch

POINTS = {1: (31,), 2: (14, 11), 3: (8, 9, 10)}
SMALL = {1: (4, 6, 2), 2: (3, 4, 2), 3: (3, 3, 2)}
VARIANTS = {
    "paper": {},
    "no coordinates": {"coordinates": "none"},
    "periodic coordinates": {"coordinates": "periodic"},
    "unconstrained generator": {"generator": "unconstrained"},
    "residual update": {"update": "residual"},
    "pointwise update": {"update": "pointwise"},
    "no correction": {"correction": "none"},
    "residual, no correction": {"update": "residual", "correction": "none"},
}


def named_arrays(model) -> dict[str, np.ndarray]:
    """Arrays by the dotted names of PyTorch: `.layers.mixer.real` holds every `layers.0.mixer.real`."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_inexact_array)):
        name, array = jax.tree_util.keystr(path).lstrip("."), np.asarray(leaf)
        if name.startswith("layers."):
            found |= {name.replace("layers", f"layers.{i}", 1): part for i, part in enumerate(array)}
        else:
            found[name] = array
    return found


def pair(settings: Settings, *, spread: float) -> tuple[SGNO, TorchSGNO]:
    """The same random weights in both, moved far enough from the start that every cap is active somewhere."""
    shape = ("pointwise", "num_spatial_dims", "num_channels")
    config = SGNOConfig(**{name: value for name, value in asdict(settings).items() if name not in shape})
    grid = Grid(settings.num_channels, (2 * config.num_modes,) * settings.num_spatial_dims)
    model = SGNO(config, grid, key=jax.random.key(0))
    rng = np.random.default_rng(1)
    move = lambda x: jnp.asarray(x + spread * rng.standard_normal(x.shape), x.dtype)
    model = jax.tree.map(lambda x: move(x) if eqx.is_inexact_array(x) else x, model)
    return model, load_numpy(TorchSGNO(settings), named_arrays(model))


def close(ours, theirs, tolerance: float) -> bool:
    """Largest difference relative to the largest value."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return bool(np.max(np.abs(ours - theirs)) <= tolerance * max(np.max(np.abs(theirs)), 1e-3))


# Every variant in 2D, where each axis has its own rule for the modes; the paper's model in 1D and 3D too.
CASES = [(2, name) for name in VARIANTS] + [(1, "paper"), (3, "paper")]


@pytest.mark.parametrize(("d", "variant"), CASES)
def test_same_output_and_gradients(d, variant):
    width, modes, blocks = SMALL[d]
    settings = Settings(d, 2, width, modes, blocks, **VARIANTS[variant])
    ours, theirs = pair(settings, spread=0.2)
    u = np.random.default_rng(2).standard_normal((3, 2, *POINTS[d])).astype(np.float32)
    target = np.random.default_rng(3).standard_normal(u.shape).astype(np.float32)

    def loss(model):
        predicted = batch(model, jnp.asarray(u))
        return jnp.mean((predicted - target) ** 2), predicted

    gradient, predicted = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))(ours)
    prediction = theirs(torch.from_numpy(u))
    torch.nn.functional.mse_loss(prediction, torch.from_numpy(target)).backward()

    assert close(predicted, prediction.detach().numpy(), 1e-5)
    named = named_arrays(gradient)
    for name, parameter in theirs.named_parameters():
        assert parameter.grad is not None, name
        assert close(named[name], parameter.grad.numpy(), 1e-4), name


@pytest.mark.parametrize("d", [1, 2, 3])
def test_convolutions_and_products_are_the_same_pointwise_map(d):
    products = TorchSGNO(paper(d))
    convolutions = load_numpy(TorchSGNO(paper(d, pointwise="convolution")), dump_numpy(products))
    u = torch.randn(2, 1, *{1: (160,), 2: (24, 20), 3: (12, 14, 13)}[d])
    with torch.inference_mode():
        assert torch.allclose(products(u), convolutions(u), atol=1e-5)


@pytest.mark.parametrize(
    ("d", "once", "real"), [(1, 30_573, 52_595), (2, 56_402, 101_402), (3, 192_827, 365_627)]
)
def test_parameter_counts_of_the_paper(d, once, real):
    model = TorchSGNO(paper(d))
    assert model.count(complex_once=True) == once
    assert model.count() == real


def test_weights_survive_a_round_trip():
    first, second = TorchSGNO(paper(1)), TorchSGNO(paper(1))
    load_numpy(second, dump_numpy(first))
    u = torch.randn(2, 1, 160)
    assert torch.equal(first(u), second(u))


def test_updates_reduce_the_loss_and_rollout_repeats_the_step():
    torch.manual_seed(0)
    model = TorchSGNO(Settings(1, 1, 4, 4, 2))
    u = torch.randn(8, 1, 16)
    update = training_update(model)
    losses = [float(update(u, 0.5 * u)) for _ in range(300)]
    assert losses[-1] < 0.5 * losses[0]
    with torch.inference_mode():
        assert torch.allclose(rollout(model, u, 3), model(model(model(u))), atol=1e-6)


def test_learning_rate_rises_to_its_peak_and_falls_to_zero():
    assert learning_rate(0) == 0 and learning_rate(2_000) == 1e-3
    assert learning_rate(1_000) == pytest.approx(5e-4) and learning_rate(6_000) == pytest.approx(5e-4)
    assert learning_rate(10_000) == pytest.approx(0)
