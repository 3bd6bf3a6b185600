"""The forecast that nothing changes, as a model like any other."""

import jax
import numpy as np

import sgno
from sgno.step import count_parameters


def test_persistence_fits_saves_loads_and_scores_what_its_closed_form_says(tmp_path):
    # A wave that turns by a twelfth of a circle a step: after n steps the state is off by 2 sin(pi n / 12).
    x = 2 * np.pi * np.arange(24) / 24
    u = np.stack([np.sin(x - np.pi * n / 6) for n in range(9)])[None, :, None].repeat(5, axis=0)
    fitted = sgno.fit(u, "persistence", validation=0, test=1)
    errors = 2 * np.abs(np.sin(np.pi * np.arange(1, 9) / 12))
    np.testing.assert_allclose(fitted.record["mean_nrmse"], errors, rtol=1e-5)
    assert fitted.record["params"] == 0 and fitted.record["job"]["train"]["updates"] == 0
    sgno.save(tmp_path / "still.safetensors", fitted.step)
    state = jax.random.normal(jax.random.key(0), (1, 24))
    loaded = sgno.load(tmp_path / "still.safetensors")
    np.testing.assert_allclose(loaded(state), state, atol=1e-6)
    assert (
        count_parameters(
            sgno.get_model("persistence", 2).build(sgno.Grid(2, (8, 8)), key=jax.random.key(0))
        ).real
        == 0
    )
