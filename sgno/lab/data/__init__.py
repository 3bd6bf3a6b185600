"""Trajectories from tasks or from the user's files, and their cache."""

from sgno.io.source import Source as Source
from sgno.io.source import array_source as array_source
from sgno.io.source import open_source as open_source
from sgno.lab.data.trajectories import Trajectories as Trajectories
from sgno.lab.data.trajectories import check_finite as check_finite
from sgno.lab.data.trajectories import load_trajectories as load_trajectories
