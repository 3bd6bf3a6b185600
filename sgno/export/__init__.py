"""A trained step for other worlds: StableHLO for every step, a PyTorch module for those written here."""

from sgno.export.pytorch import export_torch as export_torch
from sgno.export.stablehlo import export_stablehlo as export_stablehlo
