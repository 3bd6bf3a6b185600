"""SGNO-X: the generator in state space, closed by products, bounded by a trapping set."""

from sgno.sgno_x.model import SGNOX as SGNOX
from sgno.sgno_x.model import ResolvedSGNOXConfig as ResolvedSGNOXConfig
from sgno.sgno_x.model import SGNOXConfig as SGNOXConfig
from sgno.sgno_x.scheme import Multipliers as Multipliers
from sgno.sgno_x.scheme import Scheme as Scheme
from sgno.sgno_x.trapping import TrappingSet as TrappingSet
