"""What a long computation is doing: it tells, and whoever started it may listen.

    with listening(lambda stage: print(stage.what, stage.done, stage.total)):
        sgno.fit(u, "sgno-x")

The listener belongs to the thread or task that listens, so nothing is passed down through the layers, and
where nobody listens nothing happens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Stage(NamedTuple):
    """What is being done, and how much of it: `done` of `total`, which is 0 where nobody knows."""

    what: str
    done: int = 0
    total: int = 0


_listener: ContextVar[Callable[[Stage], None] | None] = ContextVar("listener", default=None)


def tell(what: str, done: int = 0, total: int = 0) -> None:
    """Say what begins or goes on."""
    listener = _listener.get()
    if listener is not None:
        listener(Stage(what, done, total))


@contextmanager
def listening(listener: Callable[[Stage], None]) -> Iterator[None]:
    """Hear every `Stage` that is told inside."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
