"""No test that cannot fail: central lines are broken one at a time, in a copy; each must turn the tests red.

What was broken and which test saw it is kept in `results/mutations.json`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from keep import keep

ROOT = Path(__file__).parent.parent


class Mutation(NamedTuple):
    """What is broken: `old` becomes `new` in a file of the package, and `test` must notice."""

    what: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "the sign of lambda",
        "models/generator.py",
        "return -(jax.nn.softplus(self.theta) + damping)",
        "return jax.nn.softplus(self.theta) - damping",
        "test_sgno.py::test_constraints_hold_for_every_parameter_value",
    ),
    Mutation(
        "the mixer's norm is not capped",
        "models/mixer.py",
        "jnp.maximum(1, spectral_norm_bound(re, im, cap=1.0))",
        "jnp.minimum(1, spectral_norm_bound(re, im, cap=1.0))",
        "test_sgno.py::test_constraints_hold_for_every_parameter_value",
    ),
    Mutation(
        "the budget's factor 2",
        "models/generator.py",
        "return 2 * jax.nn.sigmoid",
        "return 3 * jax.nn.sigmoid",
        "test_sgno.py::test_constraints_hold_for_every_parameter_value",
    ),
    Mutation(
        "phi_1 is not divided by z",
        "spectral/phi.py",
        "_taylor(near, order=1), jnp.expm1(far) / far)",
        "_taylor(near, order=1), jnp.expm1(far))",
        "test_spectral.py::test_phi_of_real_arguments",
    ),
    Mutation(
        "a claim is granted twice",
        "locks.py",
        "    except BlockingIOError:\n        return False",
        "    except BlockingIOError:\n        return True",
        "test_study.py::test_a_claim_is_exclusive_and_ends_with_its_process",
    ),
    Mutation(
        "the checksum of an array is not compared",
        "files.py",
        "if checksum(array) != crc:",
        "if checksum(array) is None:",
        "test_files.py::test_any_change_of_one_byte_is_noticed_or_harmless",
    ),
    Mutation(
        "the seal of a record is not compared",
        "files.py",
        "    if not whole:",
        "    if whole is None:",
        "test_faults.py::test_no_byte_of_a_record_can_change_unnoticed",
    ),
    Mutation(
        "nRMSE is relative to the prediction",
        "evaluation/errors.py",
        "_norm(prediction - reference) / (_norm(reference) + EPSILON)",
        "_norm(prediction - reference) / (_norm(prediction) + EPSILON)",
        "test_evaluation.py::test_errors_agree_with_exponax",
    ),
    Mutation(
        "GMean100 goes on to step 200",
        "evaluation/scores.py",
        "HORIZON = 100",
        "HORIZON = 200",
        "test_evaluation.py::test_gmean_agrees_with_apebench",
    ),
    Mutation(
        "the seed is not in the job's id",
        "study/job.py",
        '"seed": self.seed,',
        '"seed": 0,',
        "test_study.py::test_ids_are_unique_and_survive_json[desk]",
    ),
    Mutation(
        "the trapping set is not closed",
        "models/sgno_x/trapping.py",
        "outside = power > radius**2",
        "outside = power > 2 * radius**2",
        "test_sgno_x.py::test_projection_is_the_identity_inside_lands_inside_and_is_nonexpansive",
    ),
    Mutation(
        "SGNO-X judges its products on what it fitted",
        "models/sgno_x/screening.py",
        "part = slice(self.fitting, None) if held",
        "part = slice(0, self.fitting) if held",
        "test_sgno_x.py::test_a_choice_is_judged_on_states_that_were_not_fitted",
    ),
    Mutation(
        "the start is fitted to the test set",
        "study/job.py",
        "warm_start(step, start_part(learned)",
        "warm_start(step, data.test",
        "test_study.py::test_training_never_looks_at_the_test_part",
    ),
    Mutation(
        "the horizon's bound forgets the one-step error",
        "evaluation/certificates/horizon.py",
        "float(np.logaddexp(log_rate + bound[-1], log_added))",
        "log_rate + bound[-1]",
        "test_certify.py::test_the_horizon_is_the_papers_closed_form",
    ),
)


def passes(copy: Path, tests: set[str]) -> bool:
    """Whether these tests of the copy pass; anything but a pass or a failure of a test is an error."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        [*command, *(f"tests/{test}" for test in sorted(tests))],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    return done.returncode == 0


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The package and its tests, never the checkout itself; its tests pass."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("sgno", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "files"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    assert passes(copy, {mutation.test for mutation in MUTATIONS})
    return copy


def test_every_broken_line_turns_the_tests_red(copy):
    survived = []
    for mutation in MUTATIONS:
        path = copy / "sgno" / mutation.file
        source = path.read_text()
        assert source.count(mutation.old) == 1, mutation.what
        path.write_text(source.replace(mutation.old, mutation.new))
        if passes(copy, {mutation.test}):
            survived.append(mutation.what)
        path.write_text(source)
    content = [{**mutation._asdict(), "noticed": mutation.what not in survived} for mutation in MUTATIONS]
    keep("mutations", {"mutations": content, "noticed": len(MUTATIONS) - len(survived), "of": len(MUTATIONS)})
    assert not survived
