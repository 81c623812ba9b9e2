"""Worker suite: commands on many jobs count the jobs that they changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import QUEUE

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness


class BulkCommands(WorkerCases):
    """Commands on many jobs count the jobs that they changed."""

    @case
    async def test_cancelling_many_again_changes_and_counts_none(self, harness: Harness) -> None:
        client = harness.client()
        await harness.call(client.enqueue_many, QUEUE, [("a", 1), ("b", 2)])
        assert await harness.call(client.cancel_many, QUEUE) == 2
        assert await harness.call(client.cancel_many, QUEUE) == 0
        await harness.call(client.enqueue, QUEUE, "c", 3)
        progress: list[int] = []
        assert await harness.call(client.cancel_many, QUEUE, batch=1, progress=progress.append) == 1
        assert progress == [0, 0, 1]

    @case
    async def test_retrying_many_counts_only_jobs_that_were_over(self, harness: Harness) -> None:
        client = harness.client()
        await harness.call(client.enqueue_many, QUEUE, [("a", 1), ("b", 2)])
        assert await harness.call(client.retry_many, QUEUE, state="queued") == 0
        await harness.call(client.cancel, QUEUE, "a")
        assert await harness.call(client.retry_many, QUEUE, state="cancelled") == 1
        assert await harness.call(client.retry_many, QUEUE, state="cancelled") == 0

    @case
    async def test_deleting_many_again_changes_and_counts_none(self, harness: Harness) -> None:
        client = harness.client()
        await harness.call(client.enqueue_many, QUEUE, [("a", 1), ("b", 2)])
        assert await harness.call(client.delete_many, QUEUE) == 2
        assert await harness.call(client.delete_many, QUEUE) == 0
