"""Jobs on a Dask cluster: one that runs already, or one of this machine that is started here.

Whoever may talk to a scheduler runs code in its workers. A local cluster therefore talks TLS with a key that
is made for it and never leaves its processes, and opens no other port. A remote one takes the TLS settings of
Dask's configuration.
The store and the data cache must lie on a file system that every worker sees under the same path.
"""

import json
import logging
import os
import queue
from collections.abc import Iterator
from typing import Any

from sgno.devices import cores
from sgno.errors import InputError, require
from sgno.lab.executor import Event, drain

distributed = require("distributed", "cluster", "A Dask cluster")

_TOPIC = "sgno"
LOCAL = "local"


def _work(text: str, topic: str, cores: list[int]) -> str:
    """Runs on a worker: a call and its answer as JSON."""
    call, worker = json.loads(text), distributed.get_worker()
    if cores and hasattr(os, "sched_setaffinity"):
        # Before jax is imported: XLA counts the cores it may use when it starts.
        os.sched_setaffinity(0, {cores[int(worker.name) % len(cores)]})
    from sgno.lab.perform import perform

    def tell(kind: str, content: dict[str, Any]) -> None:
        worker.log_event(topic, json.dumps({"kind": kind, "id": call["id"], "content": content}))

    return json.dumps(perform(call, tell), allow_nan=False)


class DaskCluster:
    """An executor on Dask.

    A worker that dies is noticed by the scheduler; one of our own cluster is replaced by its nanny. The call
    is reported as lost, so the same rule decides about another try as on local processes. After Ctrl-C
    running calls are cancelled; their last checkpoint, at most half a minute old, is where they go on.

    **Arguments:**

    - `address`: of a scheduler, for example `tls://10.0.0.1:8786` with the certificates that Dask's
        configuration names, or `local`.
    - `workers`: how many processes a local cluster has; as many as there are cores by default.

    **Raises:** `InputError` if no scheduler answers or the certificates do not fit.
    """

    def __init__(self, address: str, workers: int | None = None):
        if workers is not None and workers < 1:
            raise InputError(f"workers={workers} must be at least 1.")
        self._cores = cores() if address == LOCAL else []
        self._cluster = _start_cluster(workers or len(self._cores)) if address == LOCAL else None
        if (
            address.startswith("tls://")
            and not distributed.Security().get_connection_args("client")["ssl_context"]
        ):
            raise InputError(
                f"{address} asks for TLS, but Dask has no certificates here. Name those of your cluster in "
                "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__TLS__CLIENT__CERT and ...__TLS__CLIENT__KEY."
            )
        try:
            # Synchronous here; the annotations of `distributed` also allow for coroutines.
            self._client: Any = distributed.Client(self._cluster or address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"No Dask scheduler answers at {address} ({error}). Check the address and its certificates."
            ) from error
        # Studies that share a scheduler must not hear each other.
        self._topic = f"{_TOPIC}-{self._client.id}"
        self._heard: queue.Queue[Event] = queue.Queue()
        self._calls: dict[str, Any] = {}
        self._client.subscribe_topic(self._topic, self._on_message)
        self._tries = 0

    @property
    def address(self) -> str:
        """Where the scheduler listens."""
        return self._client.scheduler_info()["address"]

    @property
    def slots(self) -> int:
        """The threads of all workers now; a cluster may grow and shrink while a study runs."""
        return max(1, sum(self._client.nthreads().values()))

    def worker_pids(self) -> list[int]:
        """The worker processes, in the order of their addresses."""
        found = self._client.run(os.getpid)
        return [found[address] for address in sorted(found)]

    def submit(self, call: dict[str, Any]) -> None:
        self._tries += 1
        # A key of its own for every try: a cancelled or lost one must not answer for the next.
        key = f"sgno-{call['id']}-{self._client.id}-{self._tries}"
        future = self._client.submit(_work, json.dumps(call), self._topic, self._cores, key=key, pure=False)
        self._calls[call["id"]] = future
        future.add_done_callback(lambda done, call_id=call["id"]: self._on_done(call_id, done))

    def events(self, timeout: float) -> Iterator[Event]:
        for event in drain(self._heard, timeout):
            if event.kind in ("done", "lost"):
                self._calls.pop(event.id, None)
            yield event

    def _on_message(self, stamped: tuple[float, str]) -> None:
        message = json.loads(stamped[1])
        self._heard.put(Event(message["kind"], message["id"], message["content"]))

    def _on_done(self, call_id: str, future: Any) -> None:
        if future.status == "finished":
            self._heard.put(Event("done", call_id, json.loads(future.result())))
        elif future.status == "error":
            self._heard.put(Event("lost", call_id, {"error": f"Dask reports: {future.exception()}"}))
        elif future.status in ("cancelled", "lost"):
            self._heard.put(Event("lost", call_id, {"error": f"Dask reports the call as {future.status}."}))

    def __enter__(self) -> "DaskCluster":
        return self

    def __exit__(self, kind, error, trace) -> None:
        if self._calls:
            self._client.cancel(list(self._calls.values()), force=True)
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


class _Scheduler(distributed.Scheduler):
    """A scheduler without Dask's page of statistics, which would listen on a port of its own."""

    def start_http_server(self, *args, **kwargs) -> None:
        """Start none."""


class _Worker(distributed.Worker):
    """A worker without that page."""

    def start_http_server(self, *args, **kwargs) -> None:
        """Start none."""


def _start_cluster(workers: int) -> Any:
    """Worker processes with one thread each, on loopback, which talk to nobody but each other and us."""
    import dask.config

    require("cryptography", "cluster", "The key of a local Dask cluster")
    security = distributed.Security.temporary()
    reach = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
    worker = {**reach, "nthreads": 1, "memory_limit": 0, "worker_class": _Worker}
    # A worker's death is reported at once instead of being tried again behind our back.
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        return distributed.SpecCluster(
            scheduler={"cls": _Scheduler, "options": {**reach, "port": 0, "dashboard": False}},
            workers={i: {"cls": distributed.Nanny, "options": dict(worker)} for i in range(workers)},
            worker={"cls": distributed.Nanny, "options": worker},
            security=security,
            silence_logs=logging.WARN,
        )
