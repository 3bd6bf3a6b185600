"""Training: settings, state, loop, checkpoint."""

from sgno.training.config import TrainConfig as TrainConfig
from sgno.training.loop import Progress as Progress
from sgno.training.loop import TrainResult as TrainResult
from sgno.training.loop import train as train
from sgno.training.loop import train_seeds as train_seeds
from sgno.training.state import TrainState as TrainState
