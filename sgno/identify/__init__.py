"""From data to a step: least squares for Linear, and for SGNO-X its products, weights and scheme.

Whoever imports `warm_start` from here has the versions of all models with it.
"""

from sgno.identify.linear import warm_start as warm_start
from sgno.identify.start import Start as Start
from sgno.identify.start import start_from_data as start_from_data
