"""Bases, modes, transforms, phi functions, spectral norms and resampling: the only code that calls an FFT."""

from sgno.spectral.bases import Basis as Basis
from sgno.spectral.bases import Cosine as Cosine
from sgno.spectral.bases import Sine as Sine
from sgno.spectral.bases import derivative as derivative
from sgno.spectral.bases import grid_points as grid_points
from sgno.spectral.bases import mode_numbers as mode_numbers
from sgno.spectral.bases import mode_shape as mode_shape
from sgno.spectral.bases import multiplicity as multiplicity
from sgno.spectral.bases import namespace as namespace
from sgno.spectral.bases import shared_index as shared_index
from sgno.spectral.bases import to_modes as to_modes
from sgno.spectral.bases import to_points as to_points
from sgno.spectral.bases import wavenumber_norm as wavenumber_norm
from sgno.spectral.bases import wavenumbers as wavenumbers
from sgno.spectral.norms import spectral_norm_bound as spectral_norm_bound
from sgno.spectral.phi import phi1 as phi1
from sgno.spectral.phi import phi2 as phi2
from sgno.spectral.phi import phi3 as phi3
from sgno.spectral.retained import check_enough_points as check_enough_points
from sgno.spectral.retained import from_retained as from_retained
from sgno.spectral.retained import radius as radius
from sgno.spectral.retained import retained_modes as retained_modes
from sgno.spectral.retained import retained_shape as retained_shape
from sgno.spectral.retained import to_retained as to_retained
