"""Every shipped step scores what its card says, on the whole test of its card: minutes in 2D and 3D."""

import numpy as np
import pytest

import sgno
from sgno.lab.data import load_trajectories
from sgno.lab.tasks import Task
from sgno.lab.zoo import shelf
from sgno.solve import evaluate


@pytest.mark.parametrize("name", shelf.names())
def test_each_reproduces_its_stated_score(name):
    card = shelf.card(name)
    scored = evaluate(sgno.load(name), load_trajectories(Task.from_json(card.task)).test)
    if card.gmean100 is None:
        assert not np.isfinite(scored.gmean100)
        return
    # Scores near 1e-6 are rounding errors, which another processor rounds otherwise.
    assert abs(np.log(scored.gmean100 / card.gmean100)) < (0.02 if card.gmean100 > 1e-4 else 0.5)
    assert abs(scored.stable_step() - card.stable_step) <= 2
