"""How fits, evaluations and data show themselves: one line, and in a notebook a small picture."""

import re

import numpy as np

import sgno
from sgno.io.source import array_source
from sgno.solve.show import with_error_curve


def test_a_fit_an_evaluation_and_data_say_what_they_are_in_a_line():
    u = np.cos(np.arange(12)[:, None, None] * 0.1 + np.arange(16) * 2 * np.pi / 16 + np.zeros((6, 1, 1, 1)))
    fitted = sgno.fit(u, "persistence")
    assert re.fullmatch(
        r"Fit\(persistence: GMean100 [\d.e-]+, below 20 % for \d+ of 11 steps.*\)", repr(fitted)
    )
    assert "<svg" in fitted._repr_html_()
    scored = sgno.evaluate(lambda u: u, u.astype(np.float32))
    assert re.fullmatch(
        r"Evaluation\(GMean100 .*, below 20 % for \d+ of 11 steps, 6 trajectories\)", repr(scored)
    )
    assert repr(array_source(u)).endswith("6 trajectories, 12 times, 1 channel(s), 16 points")


def test_the_picture_has_a_point_for_each_step_and_survives_what_diverged():
    picture = with_error_curve("a < b", [1e-3, None, float("inf"), 1e300, 0.0])
    (points,) = re.findall(r'points="([^"]*)"', picture)
    places = np.array([point.split(",") for point in points.split()], float)
    assert places.shape == (5, 2) and "a &lt; b" in picture
    # The larger the error, the higher it is drawn; what is not finite is at the top.
    assert places[4, 1] > places[0, 1] > places[1, 1] == places[2, 1] == places[3, 1] >= 0
