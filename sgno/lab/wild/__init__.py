"""The wild suite: trajectories that no exponential integrator made, and the rivals of SGNO-X on them."""

from sgno.lab.wild.catalogue import WILD as WILD
from sgno.lab.wild.catalogue import get as get
from sgno.lab.wild.task import Equation as Equation
from sgno.lab.wild.task import Factor as Factor
from sgno.lab.wild.task import System as System
from sgno.lab.wild.task import Term as Term
from sgno.lab.wild.task import WildData as WildData
from sgno.lab.wild.task import WildTask as WildTask
