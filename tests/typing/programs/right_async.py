"""Correct programs with the async classes: type checkers accept every line."""

from __future__ import annotations

from typing import Any, assert_type

import pgjq


class TextSerde:
    """A serde of one's own is typed by its methods."""

    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


storage = pgjq.MemoryStorage()
queue = pgjq.AsyncQueue("words", storage=storage, payload_serde=TextSerde(), result_serde=pgjq.JsonSerde(int))


@queue.execute
async def count(job: pgjq.AsyncJob[str]) -> int:
    await job.save_checkpoint({"seen": 1})
    async with job.transaction() as connection:
        await connection.execute("select 1")
    return len(job.payload)


async def note(event: pgjq.Event) -> None:
    print(event.name)


async def produce() -> None:
    assert_type(queue, pgjq.AsyncQueue[str, int])
    assert_type(await queue.enqueue("one", "word", priority=1), pgjq.EnqueueResult[int])
    assert_type(await queue.enqueue_and_wait(None, "word", timeout=5), int)
    assert_type(await queue.get_result("one"), int | None)
    assert_type(await queue.get_result("one", ""), int | str)
    await queue.enqueue_many((None, word) for word in ("a", "b"))
    queue.on("completed", note)
    async with pgjq.AsyncClient(storage) as client:
        await client.create_queue("words", partition=True, expire_in_seconds=60)
        assert_type(await client.enqueue_and_wait("words", None, "word", retry_limit=0), Any)
        await client.cancel_many("words", state="queued", singleton_key="a")
