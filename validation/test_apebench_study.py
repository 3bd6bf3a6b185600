"""SGNO and SGNO-X, two seeds at once, through APEBench's own trainer: minutes, nearly all of it compiling."""

import sys
from pathlib import Path

import apebench
import numpy as np
import pandas
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from apebench_tiny import TINY

import sgno
from sgno.lab.apebench import StateSpaceNetwork

# APEBench and what it stands on warn of their own futures; the numbers are what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def registered():
    sgno.register_apebench()


@pytest.mark.parametrize("network", ["SGNO;4;6;2;gelu", "SGNOX;2;1;identity"])
def test_a_study_trains_it_stores_it_and_loads_it_back(network, tmp_path):
    config = {"net": network, "start_seed": 3, "num_seeds": 2, **TINY}
    # run_study goes through run_experiment, which goes through APEBench's own trainer and metrics.
    (frame,), (weights,) = apebench.run_study([config], str(tmp_path))
    table = pandas.read_csv(frame)
    assert list(table["net"]) == [network] * 2 and list(table["seed"]) == [3, 4]
    losses = table[[name for name in table.columns if name.startswith("train_loss")]].to_numpy(float)
    assert losses.shape == (2, 30) and (losses[:, -5:].mean(1) < losses[:, 0]).all()
    assert np.isfinite(table[[f"mean_nRMSE_{t:04d}" for t in range(1, 4)]].to_numpy(float)).all()
    scenario = apebench.scenarios.scenario_dict["diff_adv"](num_points=32)
    step = scenario.load_model(weights, num_seeds=2, task_config="predict", network_config=network)
    assert isinstance(step, sgno.SGNO if network.startswith("SGNO;") else StateSpaceNetwork)
