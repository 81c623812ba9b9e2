"""One connection serves all the tasks of an event loop: who gets which answer, and when it is given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis

import pgjq
from pgjq.storage.redis.address import Address
from pgjq.storage.redis.pipelined_connection import open_pipelined_connection

if TYPE_CHECKING:
    from tests.redis_server import RedisServer

QUEUE = "q"


def connections(redis_server: RedisServer) -> int:
    """Count those that are not there to listen, nor this one."""
    with redis_server.client() as client:
        found: Any = client.client_list(_type="normal")
    return sum(1 for one in found if one["name"] == "pgjq")


def test_callers_share_a_connection_and_a_cancelled_one_disturbs_no_other(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    async def case() -> None:
        client = pgjq.AsyncClient(storage)
        ids = [str(n) for n in range(100)]
        await client.enqueue_many(QUEUE, [(job_id, {"text": "\r\n$1\r\n" * int(job_id)}) for job_id in ids])
        asking = [asyncio.create_task(client.get_status(QUEUE, job_id)) for job_id in ids]
        await asyncio.sleep(0)
        for task in asking[::3]:
            task.cancel()
        told = await asyncio.gather(*asking, return_exceptions=True)
        assert [status.id for status in told if isinstance(status, pgjq.JobStatus)] == [
            job_id for n, job_id in enumerate(ids) if n % 3
        ]
        assert connections(redis_server) == 1
        await client.close()

    asyncio.run(case())


def test_a_server_that_stops_answering_is_given_up_and_its_late_replies_are_dropped(
    redis_server: RedisServer,
) -> None:
    async def case() -> None:
        client = pgjq.AsyncClient(pgjq.RedisStorage(f"{redis_server.url}?socket_timeout=0.2"))
        await client.enqueue(QUEUE, "a", 1)
        redis_server.pause()
        tries = (client.enqueue(QUEUE, job_id, 1) for job_id in "bcd")
        told = await asyncio.gather(*tries, return_exceptions=True)
        assert [type(error) for error in told] == [pgjq.StorageUnavailableError] * 3
        redis_server.resume()
        assert (await client.enqueue(QUEUE, "a", 1)).status == "duplicate"
        await client.close()

    asyncio.run(case())


def test_a_loop_that_was_busy_while_the_server_restarted_does_not_notice_it(
    redis_server: RedisServer, storage: pgjq.RedisStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgjq.storage.redis.pipelined_connection.REST_SECONDS", 0.0)

    async def case() -> None:
        client = pgjq.AsyncClient(storage)
        await client.enqueue(QUEUE, "a", 1)
        redis_server.restart()  # On this very thread: nothing is heard meanwhile.
        assert (await client.enqueue(QUEUE, "a", 1)).status == "duplicate"
        await client.close()

    asyncio.run(case())


def test_what_was_asked_is_answered_although_the_storage_is_closed_meanwhile(storage: pgjq.RedisStorage) -> None:
    async def case() -> None:
        client = pgjq.AsyncClient(storage)
        await client.enqueue(QUEUE, "a", 1)
        await client.get_status(QUEUE, "a")  # The server knows the script from now on.
        asking = asyncio.create_task(client.get_status(QUEUE, "a"))
        await asyncio.sleep(0)
        await asyncio.to_thread(storage.close)
        status = await asking
        assert status is not None
        with pytest.raises(pgjq.StorageError, match="closed"):
            await client.get_status(QUEUE, "a")

    asyncio.run(case())


def test_a_large_answer_is_read_in_time_that_grows_with_its_size(storage: pgjq.RedisStorage) -> None:
    """Megabytes come in pieces; what was read of an answer is not read again with each of them."""

    async def case() -> None:
        client = pgjq.AsyncClient(storage)
        text = "x" * 900_000
        await client.enqueue_many(QUEUE, [(str(n), text) for n in range(50)])
        jobs = await storage.operations("async").claim([QUEUE], worker="ann", limit=50, policy=pgjq.LeasePolicy())
        assert [len(job.payload) for job in jobs] == [len(text) + 2] * 50
        await client.close()

    asyncio.run(case())


def test_a_lost_connection_is_reported_and_an_unrequested_reply_ends_it(redis_server: RedisServer) -> None:
    async def case() -> None:
        address = Address(redis_server.url)
        link = await open_pipelined_connection(address)
        link.data_received(b"+OK\r\n")
        await link.lost
        with pytest.raises(redis.ConnectionError):
            await link.ask(b"*1\r\n$4\r\nPING\r\n")

    asyncio.run(case())


def test_a_server_that_is_slow_and_answers_is_not_given_up(redis_server: RedisServer) -> None:
    """Together they take longer than one answer may."""

    async def case() -> None:
        link = await open_pipelined_connection(Address(f"{redis_server.url}?socket_timeout=1"))
        slow = b"*3\r\n$5\r\nBLPOP\r\n$4\r\nnone\r\n$3\r\n0.4\r\n"
        assert await asyncio.gather(*(link.ask(slow) for _ in range(4))) == [None] * 4
        link.close()
        await link.lost

    asyncio.run(case())


def test_those_who_wait_for_a_connection_share_its_failure(
    storage: pgjq.RedisStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    async def fail(*_: Any) -> Any:
        tries.append(1)
        await asyncio.sleep(0)
        raise TimeoutError

    async def case() -> None:
        client = pgjq.AsyncClient(storage)
        with monkeypatch.context() as patch:
            patch.setattr(Address, "open_protocol", fail)
            told = await asyncio.gather(*(client.get_status(QUEUE, "a") for _ in range(10)), return_exceptions=True)
        assert {type(error) for error in told} == {pgjq.StorageUnavailableError}
        assert len(tries) == 1
        assert await client.get_status(QUEUE, "a") is None
        await client.close()

    asyncio.run(case())
