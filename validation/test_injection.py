"""A fault at every system call that changes a file, for everything that writes: `results/faults.json`.

Of the writers, the cache and a record every call is tried, of whole commands some calls of each kind.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from injection import KINDS, WORKS, start
from keep import keep

# Commands compile, so that a point of theirs costs seconds.
COMMANDS = [name for name in WORKS if name.startswith("rollout")] + ["run", "fit", "report"]
POINTS_OF_COMMANDS = 3


def test_no_fault_at_any_call_leaves_a_wrong_result_or_a_part(tmp_path):
    writers = [name for name in WORKS if name not in COMMANDS]
    for name in ("writers", "commands"):
        (tmp_path / name).mkdir()
    found = start(tmp_path / "writers", writers, 10_000)
    found |= start(tmp_path / "commands", COMMANDS, POINTS_OF_COMMANDS)
    keep("faults", summary(found))
    assert not [fault for each in found.values() for fault in each["faults"]]


def summary(found):
    """For the record: how many points of each kind, and where anything was wrong."""
    points = {kind: sum(each["points"][kind] for each in found.values()) for kind in KINDS}
    survived = sum(points.values())
    assert survived + sum(len(each["faults"]) for each in found.values()) >= 500
    return {"points_survived": survived, "by_kind": points, "works": found}
