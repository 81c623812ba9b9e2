"""Callers who ask at the same time ask together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import StorageUnavailableError
from pgjq.blocking import drive
from pgjq.storage.postgres.batching import AT_ONCE, Batcher

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Server:
    """Doubles numbers, slowly, and writes down how many it got at a time."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def double(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        self.begun.set()
        await self.go.wait()
        if 13 in numbers:
            raise ValueError("13")
        if -1 in numbers:
            raise StorageUnavailableError("away")
        return [n * 2 for n in numbers]


def asked(numbers: list[int]) -> tuple[Server, list[Any]]:
    """Have each number doubled by a task of its own."""

    async def ask() -> tuple[Server, list[Any]]:
        server = Server()
        together = Batcher[int, int]("async", server.double)
        tasks = [asyncio.create_task(_wait(together.do(n))) for n in numbers]
        await server.begun.wait()
        server.go.set()
        return server, await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(ask())


async def _wait(answer: Coroutine[Any, Any, int]) -> int:
    return await answer


def test_requests_during_a_statement_share_the_next_one() -> None:
    server, answers = asked(list(range(100, 230)))
    assert answers == [n * 2 for n in range(100, 230)]
    assert [len(batch) for batch in server.batches] == [AT_ONCE, AT_ONCE, 130 - 2 * AT_ONCE]


def test_an_error_belongs_to_its_own_request() -> None:
    _, answers = asked([1, 13, 2])
    assert answers[::2] == [2, 4]
    assert isinstance(answers[1], ValueError)


def test_a_storage_that_is_away_is_away_for_all_and_asked_once() -> None:
    server, answers = asked([1, -1, 2])
    assert [type(answer) for answer in answers] == [StorageUnavailableError] * 3
    assert len(server.batches) == 1


def test_a_cancelled_request_is_left_out_and_the_others_get_their_results() -> None:
    async def ask() -> tuple[list[list[int]], list[int]]:
        server = Server()
        together = Batcher[int, int]("async", server.double)
        tasks = [asyncio.create_task(_wait(together.do(n))) for n in (1, 2)]
        await server.begun.wait()
        tasks += [asyncio.create_task(_wait(together.do(n))) for n in (3, 4)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        server.go.set()
        answers = [await tasks[1], await tasks[3]]
        return server.batches, answers

    assert asyncio.run(ask()) == ([[1, 2], [4]], [4, 8])


def test_blocking_callers_ask_for_themselves() -> None:
    async def double(numbers: list[int]) -> list[int]:
        return [n * 2 for n in numbers]

    assert drive(Batcher[int, int]("sync", double).do(3)) == 6


def test_every_event_loop_gathers_its_own() -> None:
    async def double(numbers: list[int]) -> list[int]:
        return [n * 2 for n in numbers]

    together = Batcher[int, int]("async", double)
    assert [asyncio.run(_wait(together.do(n))) for n in (1, 2)] == [2, 4]
    assert len(together._batches.items()) == 1


@pytest.mark.parametrize("count", [1, 2])
def test_as_many_may_be_on_their_way_as_was_said(count: int) -> None:
    async def ask() -> int:
        server = Server()
        together = Batcher[int, int]("async", server.double, count)
        tasks = [asyncio.create_task(_wait(together.do(n))) for n in range(3)]
        for _ in range(5):
            await asyncio.sleep(0)
            tasks.append(asyncio.create_task(_wait(together.do(9))))
        begun = len(server.batches)
        server.go.set()
        await asyncio.gather(*tasks)
        return begun

    assert asyncio.run(ask()) == count
