"""Training: the loop, its data, and a state that can be saved and resumed."""

from sgno.training.loop import Progress as Progress
from sgno.training.loop import TrainResult as TrainResult
from sgno.training.loop import default_optimizer as default_optimizer
from sgno.training.loop import initial_state as initial_state
from sgno.training.loop import train as train
from sgno.training.state import TrainState as TrainState
from sgno.training.state import load_checkpoint as load_checkpoint
from sgno.training.state import save_checkpoint as save_checkpoint
