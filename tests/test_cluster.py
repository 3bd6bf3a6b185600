"""Jobs on a real Dask cluster of two worker processes on loopback, one of which is killed midway."""

import os
import signal
import socket
import ssl

import psutil
import pytest
from tiny_study import result, tiny_job

from sgno.errors import InputError
from sgno.lab.executor import News, run_study
from sgno.lab.job import run_job
from sgno.lab.store import Store


def test_a_study_survives_the_death_of_a_worker(tmp_path, cache):
    from sgno.lab.cluster import DaskCluster

    jobs = [tiny_job(seed, updates=4000) for seed in range(4)]
    store, heard = Store(tmp_path / "dask"), []

    with DaskCluster("local", workers=2) as executor:
        assert executor.slots == 2
        pids = executor.worker_pids()
        assert_closed_to_others(executor)

        def watch(news: News) -> None:
            heard.append(news)
            if len(heard) > 1 and {news.kind for news in heard} == {"started"}:
                # Both workers are busy: whichever this is, it takes a job with it.
                os.kill(pids[0], signal.SIGKILL)

        outcome = run_study(jobs, store, executor, cache=cache, watch=watch)
    kinds = [news.kind for news in heard]
    assert set(outcome.finished) == {job.id for job in jobs}
    assert outcome.failed == ()
    assert "lost" in kinds and "progress" in kinds
    assert kinds.count("finished") == len(jobs)

    # The same function runs either way, so one job here in this process gives the same scores.
    alone = Store(tmp_path / "alone")
    run_job(jobs[0], alone, cache=cache)
    here, there = (result(s, jobs[0].id)["record"]["gmean100"] for s in (alone, store))
    assert here == pytest.approx(there, rel=1e-4)


def assert_closed_to_others(executor) -> None:
    """No client without the cluster's own key connects, and no port of it speaks anything but TLS."""
    import dask.config
    import distributed

    address = executor.address
    assert address.startswith("tls://127.0.0.1:")
    short = {"distributed.comm.timeouts.connect": "2s", "distributed.comm.retry.count": 0}
    with dask.config.set(short):
        for credentials in (None, distributed.Security.temporary()):
            for scheme in ("tls", "tcp"):
                with pytest.raises((OSError, TypeError, RuntimeError)):
                    distributed.Client(
                        address.replace("tls", scheme),
                        security=credentials,
                        timeout="2s",
                        set_as_default=False,
                    )
    # Scheduler, nannies and workers: all that this study's processes listen on refuses a peer without a key.
    ours = psutil.Process()
    listening = [
        (process.pid, connection.laddr)
        for process in (ours, *ours.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    # One scheduler, and a nanny and a worker for each of two.
    assert len(listening) == 5 and {at.ip for _, at in listening} == {"127.0.0.1"}
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _, at in listening:
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            socket.create_connection(at, timeout=5) as plain,
            context.wrap_socket(plain) as wrapped,
        ):
            # TLS 1.3 tells a client without a certificate so on its first read.
            wrapped.sendall(b"hello")
            if not wrapped.recv(1):
                raise ConnectionError("closed")


def test_a_tls_address_without_certificates_is_refused_in_one_line():
    from sgno.lab.cluster import DaskCluster

    with pytest.raises(InputError, match="Dask has no certificates here"):
        DaskCluster("tls://127.0.0.1:9")


def test_an_address_where_nobody_answers_is_said_in_one_line():
    import dask.config

    from sgno.lab.cluster import DaskCluster

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "200ms"}),
        pytest.raises(InputError, match="No Dask scheduler answers at tcp://127"),
    ):
        DaskCluster("tcp://127.0.0.1:9")
