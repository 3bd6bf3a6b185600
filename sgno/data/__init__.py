"""Trajectories from tasks or from the user's files, and their cache."""

from sgno.data.source import Source as Source
from sgno.data.source import array_source as array_source
from sgno.data.source import open_source as open_source
from sgno.data.trajectories import Trajectories as Trajectories
from sgno.data.trajectories import check_finite as check_finite
from sgno.data.trajectories import load_trajectories as load_trajectories
