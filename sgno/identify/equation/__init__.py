"""Find the PDE behind trajectories, noisy, coarse or parametric, with an interval for each coefficient."""

from sgno.identify.equation.discover import discover as discover
from sgno.identify.equation.discovery import Discovery as Discovery
from sgno.identify.equation.exponax import exponax_stepper as exponax_stepper
from sgno.identify.equation.simulate import simulate as simulate
from sgno.identify.equation.start import warm_start as warm_start
from sgno.identify.equation.step import EquationConfig as EquationConfig
from sgno.identify.equation.step import EquationStep as EquationStep
from sgno.identify.equation.terms import Equation as Equation
from sgno.identify.equation.terms import Factor as Factor
from sgno.identify.equation.terms import Term as Term
from sgno.identify.equation.terms import candidates as candidates
from sgno.identify.equation.terms import parse_terms as parse_terms
