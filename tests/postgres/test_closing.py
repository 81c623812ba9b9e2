"""A storage that is closed while a call waits for the server opens no connection afterwards."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import pgjq
from pgjq.blocking import drive
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
