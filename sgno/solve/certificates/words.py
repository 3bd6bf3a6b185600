"""What a certificate guarantees and what it does not, in sentences."""

import math

from sgno.solve.certificates.certificate import Certificate
from sgno.solve.certificates.evidence import Evidence
from sgno.solve.certificates.sgno import SGNOConstants
from sgno.solve.certificates.sgno_x import SGNOXConstants


def guaranteed(certificate: Certificate) -> list[str]:
    """What holds for every input."""
    constants = certificate.constants
    lines = [_step(certificate)]
    lines.append(_trapping(certificate) if isinstance(constants, SGNOXConstants) else _carry(constants))
    if certificate.step > 1:
        lines.append(
            "Not guaranteed: that a rollout stays near the truth for long. A constant above 1 allows errors "
            "to grow by that factor each step, and the bound is a worst case over all inputs."
        )
    return lines


def found(certificate: Certificate, evidence: Evidence) -> list[str]:
    """What follows on the data that was given."""
    verdict = "holds, as it must" if evidence.holds else "is VIOLATED, which should be impossible: report it"
    last = len(evidence.error)
    until = evidence.indication_holds_until
    return [
        f"Certified bound: with the largest one-step error delta = {evidence.delta:.3g} along these "
        f"trajectories, e_t stays below the solid line on them. It {verdict}. On other trajectories "
        "delta may be larger.",
        "Indication only: along the rollout the step was seen to stretch differences by "
        f"{evidence.local:.4g}, a lower estimate of its local Lipschitz constant. The dashed line uses it in "
        f"place of the certified {certificate.step:.4g}; nothing guarantees it. Here it was not crossed up "
        f"to step {until} of {last}.",
    ]


def _step(certificate: Certificate) -> str:
    if not math.isfinite(certificate.step):
        return "Not guaranteed: without a trapping set nothing bounds the products, so there is no constant."
    relative, absolute = certificate.rounding
    added = f"{relative:.2g} (|u| + |v|) + " if relative else ""
    return (
        f"Guaranteed: one step moves two states u, v apart by at most a factor {certificate.step:.4g} in the "
        f"discrete L2 norm; its evaluation in {certificate.precision} adds at most {added}{2 * absolute:.2g}."
        + _scales(certificate)
    )


def _scales(certificate: Certificate) -> str:
    if certificate.units is None or certificate.units.kappa == 1:
        return ""
    return (
        f" The factor contains {certificate.units.kappa:.3g}, the largest scale of a channel over the "
        "smallest; data in units that make the channels alike have a smaller one."
    )


def _trapping(certificate: Certificate) -> str:
    if certificate.radius is None or certificate.sup is None:
        return "Not guaranteed: that a rollout stays bounded. This step was trained without a trapping set."
    radius = ", ".join(f"{r:.3g}" for r in certificate.radius)
    sup = ", ".join(f"{s:.3g}" for s in certificate.sup)
    return (
        "Guaranteed: from any input and for any number of steps, no state has a root mean square above "
        f"R = {radius} or a value above {sup} (per channel): every step ends in the trapping set. R says "
        "that a rollout stays bounded, not that it stays right."
    )


def _carry(constants: SGNOConstants) -> str:
    carry = max(layer.carry for layer in constants.layers)
    if carry > 1:
        return (
            "Not guaranteed: that the spectral carry grows no mode. Its generator is not constrained (max "
            f"|exp(lambda)| = {carry:.4g})."
        )
    return (
        f"Guaranteed: the spectral carry cannot grow a mode (max |exp(lambda)| = {carry:.4g}). That alone "
        "does not make the step contract: local path, correction and the outer sum enter its constant too."
    )
