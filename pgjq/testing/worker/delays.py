"""Worker suite: jobs that become due while the worker sleeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq.outcome import Retry
from pgjq.testing.applicable import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import echo

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness, Style


class Delays(WorkerCases):
    """Jobs that become due while the worker sleeps."""

    @case
    async def test_a_delayed_job_wakes_a_sleeping_worker(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "later", 1, delay=0.3)
            await harness.until_state(queue, "later", "completed")

    @case
    async def test_a_retry_with_a_delay_wakes_a_sleeping_worker(self, harness: Harness, style: Style) -> None:
        def handler(job: Any) -> int:
            if job.attempts < 3:
                raise Retry(delay=0.1)
            return job.attempts

        queue = harness.queue(handler, style=style)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            status = await harness.until_state(queue, "a", "completed", "failed")
        assert (status.state, status.result) == ("completed", 3)

    @case
    @requires("processes")
    async def test_a_delayed_job_from_another_storage_object_wakes_a_sleeping_worker(self, harness: Harness) -> None:
        queue, producer = harness.queue(echo), harness.queue(storage=harness.reopen())
        async with harness.started(queue):
            await harness.call(producer.enqueue, "later", 1, delay=0.3)
            await harness.until_state(queue, "later", "completed")
