"""SGNO-X: the generator in state space, closed by products, bounded by a trapping set."""

from sgno.sgno_x.config import SGNOXConfig as SGNOXConfig
from sgno.sgno_x.prepared import PreparedSGNOX as PreparedSGNOX
from sgno.sgno_x.prepared import Weights as Weights
from sgno.sgno_x.step import SGNOX as SGNOX
from sgno.sgno_x.trapping import TrappingSet as TrappingSet
