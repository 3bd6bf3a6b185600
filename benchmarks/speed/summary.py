"""From measured groups to the figures a reader wants: ratios first."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.speed.cases import BASELINES, ROLLOUT_STEPS, Case
from benchmarks.speed.flops import update_flops

Groups = Mapping[str, Any]
_COEFFICIENTS = {"coefficients": "", "capped coefficients": ", every cap binding"}


class Ratio(NamedTuple):
    """How many times longer the first takes; `low` and `high` come from the extremes of the repeats."""

    what: str
    value: float
    low: float
    high: float


def rows(groups: Groups, name: str) -> dict[str, dict[str, Any]]:
    """The finished records of a group by label; empty if the group was not measured."""
    records = groups.get(name, {}).get("records", [])
    return {record["case"]["label"]: record for record in records if "seconds" in record}


def others(measured: Mapping[str, Any]) -> dict[str, Any]:
    """What SGNO is compared with: whatever does the same work."""
    return {label: record for label, record in measured.items() if label not in ("sgno", *_COEFFICIENTS)}


def ratio(what: str, numerator: Mapping[str, Any], denominator: Mapping[str, Any]) -> Ratio:
    """Seconds of one over seconds of the other, measured in turn."""
    (low_n, high_n), (low_d, high_d) = numerator["spread"], denominator["spread"]
    return Ratio(what, numerator["seconds"] / denominator["seconds"], low_n / high_d, high_n / low_d)


def speed_ratios(groups: Groups) -> list[Ratio]:
    """How many times longer the others take than this package, within one group each."""
    found = []
    for work in ("update", "rollout"):
        for d in (1, 2, 3):
            measured = rows(groups, f"{work}-{d}d")
            for label, record in others(measured).items():
                if "sgno" in measured:
                    found.append(ratio(f"{d}D {work}: {label} / sgno", record, measured["sgno"]))
    for d in (1, 2, 3):
        for net in BASELINES:
            measured = rows(groups, f"update-{d}d-{net}")
            if len(measured) == 2:
                ours, theirs = measured["our loop"], measured["APEBench's trainer"]
                found.append(ratio(f"{d}D update of {net}: APEBench's trainer / our loop", theirs, ours))
    return found


def first_update_ratios(groups: Groups) -> dict[str, float]:
    """How many times longer the first update of SGNO takes than that of APEBench's FNO: compiling, mostly."""
    found = {}
    for d in (1, 2, 3):
        measured = rows(groups, f"first-{d}d")
        if len(measured) == 2:
            value = measured["sgno"]["first_seconds"] / measured["fno"]["first_seconds"]
            found[f"{d}D first update: sgno / APEBench's FNO"] = value
    return found


def memory_ratios(groups: Groups) -> dict[str, float]:
    """Peak memory of the others over that of this package; above what the imports take, once compiled."""
    found = {}
    for work in ("update", "rollout"):
        for d in (1, 2, 3):
            measured = rows(groups, f"{work}-{d}d")
            for label, record in others(measured).items():
                if "sgno" in measured:
                    ours = measured["sgno"]["peak_megabytes"]
                    found[f"{d}D {work}: {label} / sgno"] = record["peak_megabytes"] / max(ours, 1e-9)
    return found


def coefficient_shares(groups: Groups) -> dict[str, float]:
    """The share of an update spent on norm caps, generator and budget, with their gradient."""
    found = {}
    for d in (1, 2, 3):
        measured = rows(groups, f"update-{d}d")
        for label, state in _COEFFICIENTS.items():
            if {"sgno", label} <= measured.keys():
                found[f"{d}D{state}"] = measured[label]["seconds"] / measured["sgno"]["seconds"]
    return found


def matmul_rate(groups: Groups) -> float | None:
    """Floating-point operations per second of a large matrix product on this machine."""
    measured = rows(groups, "matmul")
    if not measured:
        return None
    record = measured["matrix product"]
    return 2 * record["case"]["points"][0] ** 3 / record["seconds"]


def matmul_shares(groups: Groups) -> dict[str, float]:
    """The share of the matrix-product rate that an SGNO update reaches, counting needed arithmetic only."""
    from sgno.nn.sgno import SGNOConfig
    from sgno.registry import get_model

    rate, found = matmul_rate(groups), {}
    for d in (1, 2, 3):
        record = rows(groups, f"update-{d}d").get("sgno")
        config = get_model("sgno", d)
        if rate is None or record is None or not isinstance(config, SGNOConfig):
            continue
        case = Case.from_json(record["case"])
        found[f"{d}D"] = update_flops(config, case.points, case.batch) / record["seconds"] / rate
    return found


def growth(groups: Groups, d: int) -> float | None:
    """The largest factor by which time grew faster than N log N between two grids, the smaller below.

    At most 1 means that no finer grid costs more than N log N foretells from a coarser one.
    """
    measured = sorted(
        (math.prod(record["case"]["points"]), record["seconds"])
        for record in rows(groups, f"points-{d}d").values()
    )
    relative = [seconds / (n * math.log2(n)) for n, seconds in measured]
    pairs = [(i, j) for j in range(len(relative)) for i in range(j)]
    return max((relative[j] / relative[i] for i, j in pairs), default=None)


def rollout_seconds(record: Mapping[str, Any]) -> float:
    """Seconds of a whole rollout, from the steps that were timed."""
    return record["seconds"] * ROLLOUT_STEPS / record["case"]["timed_steps"]


def summarise(groups: Groups) -> dict[str, Any]:
    """All of the above as JSON."""
    return {
        "speed": [r._asdict() for r in speed_ratios(groups)],
        "first_update": first_update_ratios(groups),
        "memory": memory_ratios(groups),
        "coefficients_share_of_update": coefficient_shares(groups),
        "matmul_gflops": None if (rate := matmul_rate(groups)) is None else rate / 1e9,
        "share_of_matmul_rate": matmul_shares(groups),
        "growth_over_n_log_n": {f"{d}D": growth(groups, d) for d in (1, 2, 3)},
    }
