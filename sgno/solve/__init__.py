"""Rollout, errors, spectra and scores."""

from sgno.solve.evaluate import Evaluation as Evaluation
from sgno.solve.evaluate import evaluate as evaluate
from sgno.solve.monitor import Monitor as Monitor
from sgno.solve.monitor import reference_statistics as reference_statistics
from sgno.solve.rollout import rollout as rollout
from sgno.solve.rollout import stream as stream
from sgno.solve.scores import gmean as gmean
from sgno.solve.scores import stable_step as stable_step
