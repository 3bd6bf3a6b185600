"""Modes, truncated transforms, phi functions and spectral norms: pure functions."""

from sgno.spectral.modes import check_enough_points as check_enough_points
from sgno.spectral.modes import mode_grid as mode_grid
from sgno.spectral.modes import mode_shape as mode_shape
from sgno.spectral.modes import radius as radius
from sgno.spectral.norms import spectral_norm_bound as spectral_norm_bound
from sgno.spectral.phi import phi1 as phi1
from sgno.spectral.phi import phi2 as phi2
from sgno.spectral.transforms import from_modes as from_modes
from sgno.spectral.transforms import to_modes as to_modes
