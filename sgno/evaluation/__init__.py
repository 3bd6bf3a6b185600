"""Rollout, errors, spectra and scores."""

from sgno.evaluation.evaluate import Evaluation as Evaluation
from sgno.evaluation.evaluate import evaluate as evaluate
from sgno.evaluation.monitor import Monitor as Monitor
from sgno.evaluation.monitor import reference_statistics as reference_statistics
from sgno.evaluation.rollout import rollout as rollout
from sgno.evaluation.rollout import stream as stream
from sgno.evaluation.scores import gmean as gmean
from sgno.evaluation.scores import stable_step as stable_step
