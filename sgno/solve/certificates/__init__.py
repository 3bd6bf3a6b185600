"""What is guaranteed of a trained step, and what was only measured."""

from sgno.solve.certificates.certificate import Certificate as Certificate
from sgno.solve.certificates.certificate import certify as certify
from sgno.solve.certificates.evidence import Evidence as Evidence
from sgno.solve.certificates.evidence import gather_evidence as gather_evidence
