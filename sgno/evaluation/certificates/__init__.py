"""What is guaranteed of a trained step, and what was only measured."""

from sgno.evaluation.certificates.certificate import Certificate as Certificate
from sgno.evaluation.certificates.certificate import certify as certify
from sgno.evaluation.certificates.evidence import Evidence as Evidence
from sgno.evaluation.certificates.evidence import gather_evidence as gather_evidence
