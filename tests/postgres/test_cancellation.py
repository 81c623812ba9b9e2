"""A call that is cancelled in the moment in which the pool has a connection for it is cancelled."""

from __future__ import annotations

import asyncio

import pytest

import pgjq


@pytest.mark.parametrize("ticks", range(4))
def test_a_cancellation_is_not_lost_while_a_connection_is_handed_over(database: str, ticks: int) -> None:
    """A worker that was stopped while it fell asleep slept on: the cancellation came with the connection."""
    asyncio.run(_cancel_the_next(database, ticks))


async def _cancel_the_next(database: str, ticks: int) -> None:
    storage = pgjq.PostgresStorage(database, max_size=1)
    ops = storage.operations("async")
    await ops.queue_names()
    first, second = (asyncio.create_task(ops.queue_names()) for _ in range(2))
    await first
    for _ in range(ticks):
        await asyncio.sleep(0)
    if second.cancel():  # Else the machine was so busy that the answer was there already.
        await asyncio.wait([second])
        assert second.cancelled()
    assert await asyncio.wait_for(ops.queue_names(), 20) == [], "the connection is back in the pool"
    await ops.close()
    storage.close()
