"""From data to a step: least squares for Linear, and for SGNO-X its products, weights and scheme.

Whoever imports `warm_start` from here has the versions of all models with it.
"""

import sgno.identify.linear
import sgno.identify.normalised
import sgno.identify.start  # noqa: F401
from sgno.identify.warm_start import warm_start as warm_start
