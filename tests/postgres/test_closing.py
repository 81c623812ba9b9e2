"""A storage that is closed while a call waits for the server opens no connection afterwards."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.background import BackgroundThread
from pgjq.blocking import drive
from pgjq.storage.postgres import listener
from tests.worker.conftest import until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from pgjq.blocking import Mode


def _enqueue(storage: pgjq.PostgresStorage, mode: Mode) -> object:
    if mode == "sync":
        return pgjq.Client(storage).enqueue("q", "a", None)
    return asyncio.run(pgjq.AsyncClient(storage).enqueue("q", "a", None))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_first_call_that_is_answered_after_the_close_is_refused(database: str, mode: Mode) -> None:
    """Threads and sockets of a pool that was opened too late would stay: the check of leaks looks for them."""
    with Proxy(database) as proxy, ThreadPoolExecutor(1) as pool:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        proxy.silence()
        calling = pool.submit(_enqueue, storage, mode)
        until(lambda: proxy._writers)
        storage.close()
        proxy.restore()
        with pytest.raises(pgjq.StorageError, match="closed"):
            calling.result(60)


def test_a_background_thread_opens_no_connection_after_the_close_of_its_own(database: str) -> None:
    """A reaper was stopped while its first statement hung, and made its second: its thread outlived the stop."""
    storage = pgjq.PostgresStorage(database)
    ops = storage.dedicated()
    drive(ops.next_deadline())
    drive(ops.close())
    with pytest.raises(pgjq.StorageError, match="closed"):
        drive(ops.next_deadline())
    storage.close()


def test_a_listener_that_connects_too_late_closes_its_connection(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close does not wait for a thread that hangs in a connection attempt; the check of leaks sees a socket."""
    storage, connect = pgjq.PostgresStorage(database), psycopg.connect
    connecting, closed = threading.Event(), threading.Event()

    def connect_late(*args: Any, **options: Any) -> Any:
        if options.get("application_name") == "pgjq listener":
            connecting.set()
            assert closed.wait(60)
        return connect(*args, **options)

    with pytest.raises(pgjq.TimeoutError):
        pgjq.Client(storage).enqueue_and_wait("q", "a", None, timeout=0.1)
    monkeypatch.setattr(psycopg, "connect", connect_late)
    monkeypatch.setattr(listener, "PROBE_SELDOM_SECONDS", 0.2)  # No subscriber is left to notice the loss for.
    with connect(database, autocommit=True) as other:
        other.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgjq listener'")
    assert connecting.wait(60)
    with monkeypatch.context() as patched:
        patched.setattr(BackgroundThread, "join", lambda _self, timeout: timeout)
        storage.close()
    closed.set()
