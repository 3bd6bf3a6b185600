"""The systems that SGNO is compared with: APEBench's networks, CNO, the linear fit, and their convolution."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import apebench
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgno.grid import Grid
from sgno.identify import warm_start
from sgno.nn import convolution
from sgno.nn.apebench import ApebenchConfig
from sgno.nn.cno import CNO, CNOConfig, activate
from sgno.nn.convolution import periodic_convolution, strided_convolution, transposed_convolution
from sgno.nn.linear import Linear, LinearConfig
from sgno.spectral.resample import interpolation_matrix, resample
from sgno.step import batch, fast_batch, trainable

KEY = jax.random.key(0)

CAPACITY = [
    (1, "Conv;34;10;relu", 31757),
    (2, "Conv;26;11;relu", 61595),
    (3, "Conv;26;12;relu", 202489),
    (1, "Res;26;8;relu", 32943),
    (2, "Res;26;5;relu", 61179),
    (3, "Res;25;6;relu", 202876),
    (1, "UNet;12;2;relu", 27193),
    (2, "UNet;10;2;relu", 55661),
    (3, "UNet;11;2;relu", 200322),
    (1, "Dil;2;32;2;relu", 31777),
    (2, "Dil;2;26;2;relu", 61699),
    (3, "Dil;2;27;2;relu", 197722),
    (1, "FNO;12;18;4;gelu", 32527),
    (2, "FNO;10;6;4;gelu", 57787),
    (3, "FNO;5;7;4;gelu", 196246),
]

# One small network of each kind that APEBench ships.
SMALL = [
    "Conv;5;2;relu",
    "Res;4;2;relu",
    "UNet;3;2;relu",
    "Dil;2;4;1;relu",
    "FNO;3;4;2;gelu",
    "MLP;8;2;tanh",
    "Pure;5;identity",
    "MoRes;3;1;swish",
    "MoUNet;2;1;relu",
]


def count(config, grid) -> int:
    """The number of real weights, without computing any."""
    step = eqx.filter_eval_shape(lambda key: config.build(grid, key=key), KEY)
    return sum(leaf.size for leaf in jax.tree.leaves(step) if isinstance(leaf, jax.ShapeDtypeStruct))


# --- APEBench's networks --------------------------------------------------------------------------------


@pytest.mark.parametrize(("dims", "network", "expected"), CAPACITY)
def test_published_capacity(dims, network, expected):
    assert count(ApebenchConfig(network), Grid(1, (32,) * dims)) == expected


@pytest.mark.parametrize("network", SMALL)
def test_network_is_bit_for_bit_that_of_apebench(network):
    scenario = apebench.scenarios.difficulty.Advection(num_points=16)
    theirs: Any = scenario.get_network(network, KEY)
    ours = ApebenchConfig(network).build(Grid(1, (16,)), key=KEY)
    a, b = (jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in (theirs, ours))
    assert len(a) == len(b) > 0
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    u = jax.random.normal(KEY, (1, 16))
    assert np.array_equal(eqx.filter_jit(theirs)(u), eqx.filter_jit(ours)(u))


@pytest.mark.parametrize(
    ("dims", "network"),
    [
        *((1, network) for network in SMALL[:5]),
        (2, "UNet;2;1;relu"),
        (2, "Dil;2;2;1;relu"),
        (3, "UNet;2;1;relu"),
    ],
)
def test_batch_agrees_with_apebench_in_value_and_gradient(dims, network):
    step = ApebenchConfig(network).build(Grid(2, (8,) * dims), key=KEY)
    u = jax.random.normal(KEY, (3, 2, *(8,) * dims))
    weights, static = eqx.partition(step, trainable(step))

    @jax.jit
    def both(weights):
        step = eqx.combine(weights, static)
        fast = jax.value_and_grad(lambda w: jnp.sum(fast_batch(eqx.combine(w, static), u) ** 2))(weights)
        slow = jax.value_and_grad(lambda w: jnp.sum(jax.vmap(eqx.combine(w, static))(u) ** 2))(weights)
        return fast_batch(step, u), jax.vmap(step)(u), fast, slow

    fast_u, slow_u, fast, slow = both(weights)
    np.testing.assert_allclose(fast_u, slow_u, atol=2e-5 * np.abs(slow_u).max())
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * (np.abs(b).max() + 1e-3))


@pytest.mark.parametrize("network", [name for name in SMALL if not name.startswith("MLP")])
def test_no_layer_of_a_batch_is_left_to_the_slow_convolution(network):
    step = ApebenchConfig(network).build(Grid(1, (16,)), key=KEY)
    u = jnp.zeros((2, 1, 16))
    assert "conv_general_dilated" in str(jax.make_jaxpr(jax.vmap(step))(u))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(lambda u: fast_batch(step, u))(u))


def test_off_the_cpu_a_batch_is_as_apebench_runs_it(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    u = jnp.zeros((2, 1, 16))
    for config in (ApebenchConfig("UNet;2;1;relu"), TINY):
        step = config.build(Grid(1, (16,)), key=KEY)
        assert "conv_general_dilated" in str(jax.make_jaxpr(lambda u, step=step: fast_batch(step, u))(u))


def test_seeds_can_be_mapped_around_a_batch():
    grid, config = Grid(1, (16,)), ApebenchConfig("Dil;2;4;1;relu")
    u = jax.random.normal(KEY, (3, 1, 16))
    keys = jax.random.split(KEY, 2)
    steps = eqx.filter_vmap(lambda key: config.build(grid, key=key))(keys)
    together = eqx.filter_jit(eqx.filter_vmap(lambda step: fast_batch(step, u)))(steps)
    for i in range(2):
        np.testing.assert_allclose(together[i], batch(config.build(grid, key=keys[i]), u), atol=1e-5)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("FNN;1;2;relu", "Did you mean 'fno'.*conv.*unet"),
        ("FNO", "FNO;MODES;WIDTH;BLOCKS;ACTIVATION"),
        ("Conv;8;relu", "Conv;WIDTH;DEPTH;ACTIVATION"),
        ("Conv;8;0;relu", "positive"),
        ("Conv;8;2;rleu", "Did you mean 'relu'"),
    ],
)
def test_bad_network_string_says_what_is_expected(network, message):
    with pytest.raises(ValueError, match=message):
        ApebenchConfig(network)


@pytest.mark.parametrize(
    ("network", "points", "message"),
    [
        ("UNet;4;3;relu", (20,), "multiple of 8"),
        ("FNO;9;4;2;gelu", (16, 16), "at least 18 points"),
        ("MLP;4;2;relu", (8, 16), "same number of points"),
    ],
)
def test_network_that_does_not_fit_the_grid_is_refused(network, points, message):
    with pytest.raises(ValueError, match=message):
        ApebenchConfig(network).build(Grid(1, points), key=KEY)


# --- The convolution ------------------------------------------------------------------------------------


def convolution_by_definition(x, w, dilation):
    """Sum over taps of rolled inputs."""
    axes = tuple(range(2, x.ndim))
    y = jnp.zeros(())
    for tap in itertools.product(*(range(k) for k in w.shape[2:])):
        shift = tuple(dilation * ((k - 1) // 2 - t) for t, k in zip(tap, w.shape[2:], strict=True))
        y += jnp.einsum("oc,c...->o...", w[(..., *tap)], jnp.roll(x, shift, axes))
    return y


@pytest.mark.parametrize("slab_bytes", [2**20, 1])
@pytest.mark.parametrize(("channels_in", "channels_out"), [(3, 4), (1, 9), (9, 1)])
@pytest.mark.parametrize(
    ("points", "kernel", "dilation"), [((9,), (5,), 1), ((6, 5), (3, 3), 2), ((4, 3, 5), (3, 1, 3), 1)]
)
def test_convolution_is_its_definition(
    points, kernel, dilation, channels_in, channels_out, slab_bytes, monkeypatch
):
    # A thin input, a thin output and neither: taps are gathered before, or summed after, the product.
    monkeypatch.setattr(convolution, "_SLAB_BYTES", slab_bytes)
    keys = jax.random.split(KEY, 3)
    x = jax.random.normal(keys[0], (channels_in, 2, *points))
    w = jax.random.normal(keys[1], (channels_out, channels_in, *kernel))
    g = jax.random.normal(keys[2], (channels_out, 2, *points))

    @jax.jit
    def both(x, w, g):
        ours, ours_vjp = jax.vjp(lambda x, w: periodic_convolution(x, w, dilation=dilation), x, w)
        theirs, theirs_vjp = jax.vjp(lambda x, w: convolution_by_definition(x, w, dilation), x, w)
        return (ours, *ours_vjp(g)), (theirs, *theirs_vjp(g))

    for a, b in zip(*both(x, w, g), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize(
    ("coarse", "kernel", "stride"), [((4,), (3,), 2), ((3, 2), (1, 5), 3), ((2, 3, 2), (3, 3, 3), 2)]
)
def test_strided_and_transposed_convolutions_are_their_definitions(coarse, kernel, stride):
    d = len(coarse)
    keys = jax.random.split(KEY, 4)
    fine = tuple(stride * n for n in coarse)
    every = (..., *(slice(None, None, stride),) * d)
    w = jax.random.normal(keys[0], (4, 3, *kernel))
    definitions = {
        strided_convolution: (fine, lambda x, w: convolution_by_definition(x, w, 1)[every]),
        transposed_convolution: (
            coarse,
            lambda x, w: convolution_by_definition(jnp.zeros((*x.shape[:2], *fine)).at[every].set(x), w, 1),
        ),
    }
    for ours, (points, definition) in definitions.items():
        x = jax.random.normal(keys[1], (3, 2, *points))

        def both(x, w, ours=ours, definition=definition):
            y, vjp = jax.vjp(definition, x, w)
            ours_y, ours_vjp = jax.vjp(lambda x, w: ours(x, w, stride), x, w)
            g = jax.random.normal(keys[2], y.shape)
            return (ours_y, *ours_vjp(g)), (y, *vjp(g))

        for a, b in zip(*jax.jit(both)(x, w), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)


def test_convolution_refuses_kernels_that_do_not_fit():
    with pytest.raises(ValueError, match="odd"):
        transposed_convolution(jnp.zeros((1, 1, 4)), jnp.zeros((1, 1, 2)), 2)
    with pytest.raises(ValueError, match="multiple of 2"):
        strided_convolution(jnp.zeros((1, 1, 7)), jnp.zeros((1, 1, 3)), 2)
    with pytest.raises(ValueError, match="odd"):
        periodic_convolution(jnp.zeros((1, 1, 8)), jnp.zeros((1, 1, 2)))
    with pytest.raises(ValueError, match="does not fit"):
        periodic_convolution(jnp.zeros((2, 1, 8)), jnp.zeros((1, 1, 3)))


# --- CNO ------------------------------------------------------------------------------------------------

TINY = CNOConfig(4, num_levels=1, latent=5)


@pytest.mark.parametrize(
    ("config", "dims", "expected"),
    [(CNOConfig(10), 1, 29903), (CNOConfig(8), 2, 58717), (CNOConfig(9, latent=32), 3, 202567)],
)
def test_cno_capacity(config, dims, expected):
    assert count(config, Grid(1, (16,) * dims)) == expected


def test_interpolation_keeps_trigonometric_polynomials():
    x = lambda n, shift=0.0: 2 * np.pi * (np.arange(n) + shift) / n
    f = lambda x: 0.3 + np.sin(2 * x) - 0.5 * np.cos(3 * x)
    for given, wanted, shift in [(8, 20, 0.0), (20, 8, 0.0), (9, 9, 0.5), (8, 8, 0.25), (7, 12, 0.0)]:
        R = interpolation_matrix(given, wanted, shift)
        np.testing.assert_allclose(R @ f(x(given)), f(x(wanted, shift)), atol=1e-12)


def test_activation_is_the_filtered_leaky_relu_on_twice_the_points():
    n = 16
    v = np.array(resample(jax.random.normal(KEY, (2, 3, 13)), (n,)))
    fine = np.fft.irfft(np.fft.rfft(v), 2 * n) * 2
    kept = np.fft.rfft(np.where(fine > 0, fine, 0.01 * fine))[..., : n // 2 + 1] / 2
    kept[..., n // 2] = 0
    np.testing.assert_allclose(activate(jnp.asarray(v)), np.fft.irfft(kept, n), atol=1e-6)


@pytest.mark.parametrize("dims", [1, 2])
def test_activation_nearly_commutes_with_a_fraction_of_a_cell(dims):
    def moved(v):
        for axis, n in enumerate(v.shape[2:], start=2):
            R = jnp.asarray(interpolation_matrix(n, n, 0.37), v.dtype)
            v = jnp.moveaxis(jnp.tensordot(R, v, axes=(1, axis)), 0, axis)
        return v

    def error(f, n):
        v = resample(jax.random.normal(KEY, (4, 3, *(11,) * dims)), (n,) * dims)
        return jnp.linalg.norm(moved(f(v)) - f(moved(v))) / jnp.linalg.norm(f(v))

    # The spectrum of a kink falls as k^-2, so what still aliases falls as n^-3/2 in the mean square.
    assert error(activate, 32) < 0.2 * error(jax.nn.leaky_relu, 32)
    assert error(activate, 32) < 0.02
    assert 2**1.2 < error(activate, 32) / error(activate, 64) < 2**2


class Case(NamedTuple):
    """A small CNO, its compiled batch step and some smooth states."""

    step: CNO
    batch: Callable[[jax.Array], jax.Array]
    u: jax.Array


@pytest.fixture(scope="module", params=[1, 2, 3])
def cno(request) -> Case:
    points = (16, 8, 8)[: request.param]
    # Programs in 3D take long to compile; its residual blocks are those of the neck.
    config = dataclasses.replace(TINY, num_residual=0) if request.param == 3 else TINY
    step = config.build(Grid(2, points), key=KEY)
    u = resample(jax.random.normal(KEY, (3, 2, *(7, 5, 3)[: request.param])), points)
    return Case(step, jax.jit(lambda u: batch(step, u)), u)


def test_the_fast_batch_of_cno_agrees_in_value_and_gradient(cno):
    weights, static = eqx.partition(cno.step, trainable(cno.step))

    @jax.jit
    def both(weights):
        loss = lambda advance: lambda w: jnp.sum(advance(eqx.combine(w, static), cno.u) ** 2)
        return tuple(jax.value_and_grad(loss(advance))(weights) for advance in (fast_batch, batch))

    fast, slow = both(weights)
    for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * (np.abs(b).max() + 1e-3))
    program = str(jax.make_jaxpr(lambda u: fast_batch(cno.step, u))(cno.u))
    assert "conv_general_dilated" not in program


def test_every_weight_of_cno_receives_a_gradient(cno):
    probe = jnp.cos(jnp.arange(cno.u.size, dtype=cno.u.dtype)).reshape(cno.u.shape)
    weights, static = eqx.partition(cno.step, trainable(cno.step))
    gradient = jax.jit(jax.grad(lambda w: jnp.sum(probe * batch(eqx.combine(w, static), cno.u))))(weights)
    gradient, weights = jax.tree.leaves(gradient), jax.tree.leaves(weights)
    assert len(gradient) == len(weights)
    assert all(np.isfinite(g).all() and (np.abs(g) > 0).all() for g in gradient)


def test_cno_commutes_with_the_shifts_its_coarsest_grid_has(cno):
    axes = tuple(range(2, cno.u.ndim))
    cell = 2**TINY.num_levels
    moved = cno.batch(jnp.roll(cno.u, cell, axes))
    np.testing.assert_allclose(moved, jnp.roll(cno.batch(cno.u), cell, axes), atol=1e-5)


def test_cno_is_the_same_operator_on_another_grid(cno):
    points = cno.u.shape[2:]
    finer = tuple(2 * n for n in points)
    fine = cno.batch(resample(cno.u, finer))
    assert fine.shape[2:] == finer
    np.testing.assert_allclose(fine, resample(cno.batch(cno.u), finer), atol=1e-5)
    np.testing.assert_allclose(resample(fine, points), cno.batch(cno.u), atol=1e-5)


def test_cno_treats_samples_alone(cno):
    others_changed = cno.u.at[0].multiply(-2.0).at[2].set(1.0)
    np.testing.assert_allclose(cno.batch(others_changed)[1], cno.batch(cno.u)[1], atol=1e-6)


def test_cno_refuses_grids_it_cannot_halve():
    with pytest.raises(ValueError, match=r"multiple of 8 points and at least 16.*20"):
        CNOConfig().build(Grid(1, (20,)), key=KEY)
    with pytest.raises(ValueError, match="at least 16"):
        CNOConfig().build(Grid(1, (8,)), key=KEY)
    with pytest.raises(ValueError, match="num_levels=0"):
        CNOConfig(num_levels=0)
    with pytest.raises(ValueError, match="channels"):
        TINY.build(Grid(1, (16,)), key=KEY)(jnp.zeros((2, 16)))


# --- Linear ---------------------------------------------------------------------------------------------


def wavenumbers(points):
    *lead, last = (np.fft.fftfreq(n, 1 / n) for n in points)
    return np.meshgrid(*lead, np.abs(last[: points[-1] // 2 + 1]), indexing="ij")


def evolve(u, symbol, steps):
    """Trajectories of u under one multiplier (or matrix of multipliers) per mode, in float64."""
    axes = tuple(range(2, u.ndim))
    states = [np.fft.rfftn(u, axes=axes)]
    for _ in range(steps):
        states.append(np.einsum("oi...,si...->so...", symbol, states[-1]))
    return np.stack([np.fft.irfftn(s, s=u.shape[2:], axes=axes) for s in states], axis=1)


def random_states(points, channels, highest, samples=5):
    rng = np.random.default_rng(0)
    coarse = rng.normal(size=(samples, channels, *(2 * highest + 1,) * len(points)))
    for axis, n in enumerate(points, start=2):
        R = interpolation_matrix(coarse.shape[axis], n)
        coarse = np.moveaxis(np.tensordot(R, coarse, axes=(1, axis)), 0, axis)
    return coarse


@pytest.mark.parametrize("points", [(24,), (12, 10), (8, 6, 7)])
def test_linear_recovers_advection_diffusion(points):
    highest = 2
    k = wavenumbers(points)
    symbol = np.exp(sum(-0.3j * (axis + 1) * k_axis - 0.05 * k_axis**2 for axis, k_axis in enumerate(k)))
    data = evolve(random_states(points, 1, highest), symbol[None, None], 4).astype(np.float32)
    step = warm_start(LinearConfig().build(Grid(1, points), key=KEY), data, key=KEY)
    M = np.asarray(step.M_real + 1j * step.M_imag)[0, 0]
    seen = np.max(np.abs(k), axis=0) <= highest
    np.testing.assert_allclose(M[seen], symbol[seen], atol=2e-6)
    assert np.abs(M[~seen]).max() < 0.5
    np.testing.assert_allclose(batch(step, jnp.asarray(data[:, 0])), data[:, 1], atol=1e-5)


def test_linear_recovers_two_coupled_channels():
    n = 16
    (k,) = wavenumbers((n,))
    angle = 0.2 * k
    symbol = np.exp(-0.02 * k**2) * np.array(
        [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    )
    data = evolve(random_states((n,), 2, 7), symbol, 5)
    step = warm_start(LinearConfig().build(Grid(2, (n,)), key=KEY), data, key=KEY)
    np.testing.assert_allclose((step.M_real + 1j * step.M_imag)[..., :8], symbol[..., :8], atol=1e-6)
    assert sum(leaf.size for leaf in jax.tree.leaves(step)) == 2 * 4 * 9


@pytest.mark.parametrize(("points", "finer"), [((16,), (40,)), ((8, 10), (16, 15)), ((6, 8, 6), (9, 8, 12))])
def test_linear_embeds_its_modes_in_a_finer_grid(points, finer):
    symbol = np.exp(-0.1j * sum(wavenumbers(points)))
    data = evolve(random_states(points, 1, 2), symbol[None, None], 3)
    step = warm_start(LinearConfig().build(Grid(1, points), key=KEY), data, key=KEY)
    u = jnp.asarray(data[0, 0], jnp.float32)
    np.testing.assert_allclose(step(resample(u, finer)), resample(step(u), finer), atol=1e-5)
    np.testing.assert_allclose(resample(step(resample(u, finer)), points), step(u), atol=1e-5)


def test_linear_reads_blocks_of_a_memory_map(tmp_path, monkeypatch):
    symbol = np.exp(-0.1j * wavenumbers((16,))[0])
    data = evolve(random_states((16,), 1, 7), symbol[None, None], 6).astype(np.float32)
    np.save(tmp_path / "u.npy", data)
    step = LinearConfig().build(Grid(1, (16,)), key=KEY)
    whole = warm_start(step, jnp.asarray(data), key=KEY)
    monkeypatch.setattr("sgno.identify.linear._BLOCK_BYTES", 2 * 8 * 16)
    mapped = warm_start(step, np.load(tmp_path / "u.npy", mmap_mode="r"), key=KEY)
    np.testing.assert_allclose(mapped.M_real, whole.M_real, atol=1e-7)
    np.testing.assert_allclose(mapped.M_imag, whole.M_imag, atol=1e-7)


def test_linear_asks_for_no_training_and_starts_as_the_identity():
    config = LinearConfig()
    step = config.build(Grid(1, (10,)), key=KEY)
    assert config.recipe() == {"updates": 0}
    assert not any(jax.tree.leaves(trainable(step)))
    u = jax.random.normal(KEY, (1, 10))
    np.testing.assert_allclose(step(u), u, atol=1e-6)


def test_linear_says_what_is_wrong_with_its_data():
    step = Linear(LinearConfig(), Grid(1, (10,)))
    with pytest.raises(ValueError, match="grid that the step was built for"):
        warm_start(step, np.zeros((2, 3, 1, 12), np.float32), key=KEY)
    with pytest.raises(ValueError, match="not finite"):
        warm_start(step, np.full((2, 3, 1, 10), np.nan, np.float32), key=KEY)
    with pytest.raises(ValueError, match="channels"):
        step(jnp.zeros((2, 10)))
    with pytest.raises(ValueError, match="ridge"):
        LinearConfig(ridge=-1.0)
