"""The ten tasks of the paper and any other APEBench scenario, as plain data."""

from sgno.tasks.catalogue import CARDS as CARDS
from sgno.tasks.catalogue import TASKS as TASKS
from sgno.tasks.catalogue import TaskCard as TaskCard
from sgno.tasks.catalogue import get_task as get_task
from sgno.tasks.task import Task as Task
