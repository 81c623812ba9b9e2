"""Worker suite: retries, snoozed and discarded jobs, and the order of due jobs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pgjq.lease import LeasePolicy
from pgjq.outcome import Discard, Retry, Snooze
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import QUEUE
from pgjq.testing.worker.recorder import Gate, Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.testing.worker.harness import Harness, Style

# Without heartbeats a worker does not prefetch, so the order of the runs is the order of the claims.
NO_PREFETCH = LeasePolicy(heartbeat=None)
# Storages may count in milliseconds.
ROUNDING = 0.002


def failing(times: int, error: Callable[[], Exception] = lambda: ValueError("no")) -> Callable[[Any], int]:
    """Return a handler that fails the first attempts of a job, then returns its attempt number."""

    def handler(job: Any) -> int:
        if job.attempts <= times:
            raise error()
        return job.attempts

    return handler


class Retries(WorkerCases):
    """Retries, snoozed and discarded jobs, and the order of due jobs."""

    @case
    async def test_a_retry_with_a_delay_wakes_a_sleeping_worker(self, harness: Harness, style: Style) -> None:
        queue = harness.queue(failing(2, lambda: Retry(delay=0.1)), style=style)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None, retry_delay=60)
            status = await harness.until_state(queue, "a", "completed", "failed")
        assert (status.state, status.result, status.attempts) == ("completed", 3, 3)

    @case
    async def test_a_job_that_fails_runs_again_after_its_retry_delay(self, harness: Harness) -> None:
        for error in (lambda: ValueError("no"), Retry):
            handler = Recorder(failing(2, error))
            queue = harness.queue(handler)
            async with harness.started(queue):
                await harness.call(queue.enqueue, error.__name__, None, retry_delay=0.1)
                assert (await harness.until_state(queue, error.__name__, "completed")).result == 3
            assert handler.attempts == [1, 2, 3]
            assert all(after.at - before.at >= 0.1 - ROUNDING for before, after in pairwise(handler.runs))

    @case
    async def test_with_a_backoff_the_delay_doubles_up_to_its_limit(self, harness: Harness) -> None:
        handler = Recorder(failing(2))
        queue = harness.queue(handler)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None, retry_delay=0.05, retry_backoff=True)
            await harness.until_state(queue, "a", "completed")
            await harness.call(queue.enqueue, "b", None, retry_delay=60, retry_backoff=True, retry_delay_max=0.05)
            await harness.until_state(queue, "b", "completed")
        first, second, third = handler.runs[:3]
        assert second.at - first.at >= 0.05 - ROUNDING
        assert third.at - second.at >= 0.1 - ROUNDING

    @case
    async def test_a_job_runs_as_often_as_its_attempts_allow_and_has_failed_then(self, harness: Harness) -> None:
        handler = Recorder(failing(10))
        queue, other = harness.queue(handler), harness.queue(max_attempts=2)
        async with harness.started(queue):
            for job_id, options in (("default", {}), ("one", {"retry_limit": 0}), ("four", {"max_attempts": 4})):
                await harness.call(queue.enqueue, job_id, None, **options)
            await harness.call(other.enqueue, "producer's", None)
            for job_id, runs in (("default", 3), ("one", 1), ("four", 4), ("producer's", 2)):
                status = await harness.until_state(queue, job_id, "failed")
                assert (status.attempts, status.max_attempts, status.error.message) == (runs, runs, "no")
                assert handler.ids.count(job_id) == runs

    @case
    async def test_orders_to_retry_come_to_an_end_as_well(self, harness: Harness) -> None:
        handler = Recorder(failing(10, lambda: Retry(delay=0)))
        queue = harness.queue(handler, max_attempts=2)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            status = await harness.until_state(queue, "a", "failed")
        assert (status.attempts, handler.attempts) == (2, [1, 2])
        assert status.error.type.endswith("Retry")

    @case
    async def test_a_snoozed_job_runs_again_and_no_attempt_is_counted(self, harness: Harness, style: Style) -> None:
        def snooze(job: Any) -> int:
            if len(handler.runs) <= 5:
                raise Snooze(delay=0.02)
            return job.attempts

        handler = Recorder(snooze)
        queue = harness.queue(handler, style=style, max_attempts=1)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            status = await harness.until_state(queue, "a", "completed", "failed")
        assert (status.state, status.attempts, handler.attempts) == ("completed", 1, [1] * 6)

    @case
    async def test_a_snoozed_job_waits_as_queued_and_lets_others_run(self, harness: Harness) -> None:
        def handler(job: Any) -> None:
            if job.id == "snoozed":
                raise Snooze(delay=60)

        queue = harness.queue(handler)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "snoozed", None)
            await harness.call(queue.enqueue, "other", None)
            await harness.until_state(queue, "other", "completed")
            status = await harness.until_state(queue, "snoozed", "queued")
        assert status.attempts == 0

    @case
    async def test_a_discarded_job_has_failed_whatever_attempts_are_left(self, harness: Harness, style: Style) -> None:
        handler = Recorder(failing(10, lambda: Discard("never")))
        queue = harness.queue(handler, style=style)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None, max_attempts=5)
            status = await harness.until_state(queue, "a", "failed")
        assert (status.attempts, handler.attempts, status.error.message) == (1, [1], "never")

    @case
    async def test_a_failed_job_that_is_retried_or_enqueued_again_has_all_its_attempts(self, harness: Harness) -> None:
        handler = Recorder(failing(10))
        queue, client = harness.queue(handler, max_attempts=2), harness.client()
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", 1)
            await harness.until_state(queue, "a", "failed")
            await harness.call(client.retry, QUEUE, "a")
            await harness.until(lambda: len(handler.runs) == 4, "the job runs twice more")
            await harness.until_state(queue, "a", "failed")
            assert (await harness.call(queue.enqueue, "a", 2)).status == "queued"
            await harness.until(lambda: len(handler.runs) == 6, "the job runs twice more")
        assert handler.attempts == [1, 2] * 3

    @case
    async def test_of_what_is_due_the_highest_priority_runs_first_and_then_the_oldest(self, harness: Harness) -> None:
        gate = Gate("first")
        handler = Recorder(gate)
        queue, client = harness.queue(handler, lease_policy=NO_PREFETCH), harness.client()
        async with harness.started(queue):
            await harness.call(queue.enqueue, "first", None)
            await harness.until_state(queue, "first", "processing")
            await harness.call(queue.enqueue, "much later", None, priority=9, delay=60)
            for job_id, priority, delay in (("c", 0, 0), ("b", 5, 0.1), ("a", 9, 0.1), ("d", 0, 0.1), ("e", -5, 0)):
                await harness.call(queue.enqueue, job_id, None, priority=priority, delay=delay)
            await harness.until(lambda: _ready(harness, client, 5), "all jobs but one are due")
            gate.open()
            await harness.until_all(queue, "abcde")
        assert handler.ids == ["first", "a", "b", "c", "d", "e"]

    @case
    async def test_a_retried_job_keeps_its_place(self, harness: Harness) -> None:
        def body(job: Any) -> None:
            gates[job.id](job)
            if job.id == "a" and job.attempts == 1:
                raise Retry(delay=0)

        gates = {job_id: Gate(*held) for job_id, held in (("a", "a"), ("holds", ["holds"]), ("b", "-"), ("c", "-"))}
        handler = Recorder(body)
        queue = harness.queue(handler, lease_policy=NO_PREFETCH, concurrency=2)
        async with harness.started(queue):
            for n, job_id in enumerate(("a", "holds")):
                await harness.call(queue.enqueue, job_id, None)
                await harness.until(lambda n=n: len(handler.runs) == n + 1, "the handler runs")
            await harness.call(queue.enqueue_many, [("b", None), ("c", None)])
            gates["a"].open()
            await harness.until_all(queue, "abc")
            gates["holds"].open()
        assert handler.ids == ["a", "holds", "a", "b", "c"]


async def _ready(harness: Harness, client: Any, count: int) -> bool:
    return (await harness.call(client.get_queue_stats, QUEUE)).ready == count
