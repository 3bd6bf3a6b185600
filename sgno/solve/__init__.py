"""Scores, the monitor, certificates, and files of rollouts."""

from sgno.solve.evaluate import Evaluation as Evaluation
from sgno.solve.evaluate import evaluate as evaluate
from sgno.solve.forecast_horizon import ForecastHorizon as ForecastHorizon
from sgno.solve.forecast_horizon import calibrate as calibrate
from sgno.solve.metrics import gmean as gmean
from sgno.solve.metrics import stable_step as stable_step
from sgno.solve.monitor import Monitor as Monitor
from sgno.solve.monitor import reference_statistics as reference_statistics
