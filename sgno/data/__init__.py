"""Trajectories from tasks or from the user's files, and their cache."""

from sgno.data.trajectories import Trajectories as Trajectories
from sgno.data.trajectories import check_finite as check_finite
from sgno.data.trajectories import load_trajectories as load_trajectories
