"""From data to a step: Linear by least squares, SGNO-X with its products and scheme, or the PDE itself.

Whoever imports `warm_start` from here has the versions of all models with it.
"""

from sgno.identify.equation import Discovery as Discovery
from sgno.identify.equation import discover as discover
from sgno.identify.linear import warm_start as warm_start
from sgno.identify.start import Start as Start
from sgno.identify.start import start_from_data as start_from_data
