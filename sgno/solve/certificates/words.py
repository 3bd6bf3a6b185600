"""What a certificate guarantees and what it does not, in sentences, the most useful first."""

import math

from sgno.solve.certificates.certificate import Certificate
from sgno.solve.certificates.evidence import TOLERANCE, Evidence
from sgno.solve.certificates.sgno_x import SGNOXConstants


def guaranteed(certificate: Certificate) -> list[str]:
    """What holds for every input."""
    lines = []
    if certificate.linear:
        lines.append(
            "This is a linear map: it has no products, so no nonlinear equation is in it. What follows says "
            "nothing about how well it describes the data."
        )
    lines += [_bounded(certificate), _sensitivity(certificate)]
    return lines


def found(certificate: Certificate, evidence: Evidence) -> list[str]:
    """What follows on the data that was given."""
    last, until = len(evidence.error), evidence.horizons
    good = f"stays within {TOLERANCE:.0%} of the state"
    verdict = "" if evidence.holds else " It is VIOLATED, which should be impossible: report it."
    return [
        f"Measured: the error {good} for {until['measured']} of {last} steps.",
        f"Certified bound: it {good} for {until['certified']} steps on these trajectories, where the "
        f"one-step error is at most {evidence.delta:.3g}; on others that may be larger.{verdict}",
        f"Indication only: with the stretch seen along the rollout, {evidence.local:.4g}, in place of the "
        f"certified constant, the bound says {until['indicated']} steps. Nothing guarantees it; here it was "
        f"not crossed up to step {evidence.indication_holds_until} of {last}.",
    ]


def _bounded(certificate: Certificate) -> str:
    if certificate.radius is None or certificate.sup is None:
        return (
            "Not guaranteed: that a rollout stays bounded. "
            + ("A linear map" if certificate.kind == "linear" else f"This {certificate.kind}")
            + " has no trapping set."
        )
    radius = ", ".join(f"{r:.3g}" for r in certificate.radius)
    sup = ", ".join(f"{s:.3g}" for s in certificate.sup)
    return (
        "Guaranteed: from any input and for any number of steps, no state has a root mean square above "
        f"R = {radius} or a value above {sup} (per channel): every step ends in the trapping set. R says "
        "that a rollout stays bounded, not that it stays right."
    )


def _sensitivity(certificate: Certificate) -> str:
    L = certificate.step
    if not math.isfinite(L):
        why = "a part of it has no bound"
        if isinstance(certificate.constants, SGNOXConstants) and certificate.radius is None:
            why = "without a trapping set nothing bounds the products"
        return f"Not guaranteed: how much a step may amplify an error; {why}."
    if L <= 1:
        return f"Guaranteed: no error grows. Two states are at most {L:.6g} times as far apart after a step."
    # e after t steps of the worst case; below e^1 over a hundred steps the constant says something.
    if 100 * math.log(L) <= 1:
        return f"Guaranteed: a step amplifies an error by at most {L:.6g}, {L**100:.3g} in a hundred steps."
    return (
        f"Not guaranteed: that errors stay small. The worst case over all inputs is a factor {L:.3g} a step, "
        "which says nothing over more than a few steps."
    )
