"""The ten tasks of the paper and any other APEBench scenario, as plain data."""

from sgno.lab.tasks.catalogue import CARDS as CARDS
from sgno.lab.tasks.catalogue import TASKS as TASKS
from sgno.lab.tasks.catalogue import TaskCard as TaskCard
from sgno.lab.tasks.catalogue import get_task as get_task
from sgno.lab.tasks.task import Task as Task
