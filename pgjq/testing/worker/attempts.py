"""Worker suite: the attempts of a job, as `get_attempts` returns them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pgjq.job import Attempt
from pgjq.lease import LeasePolicy
from pgjq.outcome import Discard, Retry, Snooze
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import QUEUE
from pgjq.testing.worker.recorder import until_aborted

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness, Style


async def attempts(harness: Harness, job_id: str = "a") -> list[Attempt]:
    """Return the attempts of a job, in the mode of the case."""
    return await harness.call(harness.client().get_attempts, QUEUE, job_id)


async def outcomes(harness: Harness, job_id: str = "a") -> list[tuple[int, str]]:
    """Return the number and the outcome of each attempt of a job."""
    return [(attempt.number, attempt.outcome) for attempt in await attempts(harness, job_id)]


class RunHistory(WorkerCases):
    """The attempts of a job, as `get_attempts` returns them."""

    @case
    async def test_every_run_of_a_job_is_an_attempt(self, harness: Harness, style: Style) -> None:
        errors = [Snooze(0), ValueError("no"), Retry(delay=0)]

        def handler(job: Any) -> int:
            if errors:
                raise errors.pop(0)
            return job.attempts

        queue = harness.queue(handler, style=style, worker_id="ann")
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            await harness.until_state(queue, "a", "completed")
        found = await attempts(harness)
        assert [(a.number, a.outcome) for a in found] == [
            *((1, "snoozed"), (2, "failed"), (3, "failed")),
            (4, "completed"),
        ]
        assert [type(attempt) for attempt in found] == [Attempt] * 4
        assert [None if a.error is None else a.error.message for a in found] == [
            None,
            "no",
            "asked to be retried",
            None,
        ]
        assert all(a.worker is not None and a.started_at <= a.ended_at for a in found)
        assert all(before.ended_at <= after.started_at for before, after in pairwise(found))

    @case
    async def test_attempts_of_unknown_jobs_are_none(self, harness: Harness) -> None:
        assert await attempts(harness, "unknown") == []

    @case
    async def test_a_retried_job_keeps_its_history(self, harness: Harness) -> None:
        reasons = ["first", "second"]

        def handler(_: Any) -> None:
            if reasons:
                raise Discard(reasons.pop(0))

        queue, client = harness.queue(handler), harness.client()
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            for _ in range(2):
                await harness.until_state(queue, "a", "failed")
                await harness.call(client.retry, QUEUE, "a")
            await harness.until_state(queue, "a", "completed")
        assert await outcomes(harness) == [(1, "failed"), (2, "failed"), (3, "completed")]

    @case
    async def test_a_dead_workers_run_is_stalled(self, harness: Harness) -> None:
        await harness.abandon("a")
        queue = harness.queue(lambda _: None, lease_policy=LeasePolicy(reap_interval=0.05))
        async with harness.started(queue):
            await harness.until_state(queue, "a", "completed")
        stalled, completed = await attempts(harness)
        assert (stalled.number, stalled.outcome, stalled.worker) == (1, "stalled", "dead")
        assert (completed.number, completed.outcome) == (2, "completed")

    @case
    async def test_an_attempt_that_expires_in_its_worker_is_expired(self, harness: Harness) -> None:
        policy = LeasePolicy(expire=0.1, reap_interval=0)
        queue = harness.queue(until_aborted, lease_policy=policy, max_attempts=1)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            await harness.until_state(queue, "a", "failed")
        # On a busy machine a run that could not start before its expiry is released, uncounted.
        *earlier, (_, last) = await outcomes(harness)
        assert last == "expired"
        assert {outcome for _, outcome in earlier} <= {"released"}

    @case
    async def test_a_cancelled_run_is_cancelled(self, harness: Harness) -> None:
        queue = harness.queue(until_aborted, lease_policy=LeasePolicy(heartbeat=0.05))
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            await harness.until_state(queue, "a", "processing")
            await harness.call(queue.cancel, "a", active=True)
            await harness.until_state(queue, "a", "cancelled")
        assert await outcomes(harness) == [(1, "cancelled")]

    @case
    async def test_a_run_that_a_stopping_worker_gives_back_is_released(self, harness: Harness) -> None:
        queue = harness.queue(until_aborted)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            await harness.until_state(queue, "a", "processing")
            await harness.stop(queue, grace=0)
        assert await outcomes(harness) == [(1, "released")]
