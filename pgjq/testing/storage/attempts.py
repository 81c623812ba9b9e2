"""Storage contract: the history of a job's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.storage.base import Settlement
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness

if TYPE_CHECKING:
    from pgjq.job import Attempt
    from pgjq.outcome import Outcome

LATE = {"lease": 10, "heartbeat": None}


async def history(harness: Harness, job_id: str = "a") -> list[Attempt]:
    """Return the attempts of a job."""
    return await harness.ops.attempts(QUEUE, job_id)


async def outcomes(harness: Harness, job_id: str = "a") -> list[tuple[int, str]]:
    """Return the number and the outcome of each attempt of a job."""
    return [(attempt.number, attempt.outcome) for attempt in await history(harness, job_id)]


class Attempts(Cases):
    """The history of a job's runs."""

    @case
    async def test_the_completing_run_is_an_attempt(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()
        started = (await harness.status("a")).started_at
        assert await history(harness) == []
        harness.clock.advance(3)
        await harness.settle(job, Completed(b"1"))
        (attempt,) = await history(harness)
        assert (attempt.number, attempt.worker, attempt.outcome, attempt.error) == (1, "ann", "completed", None)
        assert attempt.started_at == started
        assert (attempt.ended_at - attempt.started_at).total_seconds() >= 3

    @case
    async def test_a_job_that_does_not_exist_or_has_not_run_has_no_attempts(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert await history(harness) == await history(harness, "b") == []
        assert await harness.ops.attempts("no such queue", "a") == []
        await harness.ops.cancel(QUEUE, "a")
        assert await history(harness) == []

    @pytest.mark.parametrize(
        ("outcome", "recorded", "error"),
        [
            (Failing(BOOM), "failed", BOOM),
            (Failed(BOOM), "failed", BOOM),
            (Failing(BOOM, expired=True), "expired", BOOM),
            (Failed(BOOM, expired=True), "expired", BOOM),
            (Released(), "released", None),
            (Snoozed(0), "snoozed", None),
            (Cancelled(), "cancelled", None),
        ],
    )
    @case
    async def test_a_run_is_recorded_with_its_outcome_and_error(
        self, harness: Harness, outcome: Outcome, recorded: str, error: Any
    ) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()
        started = (await harness.status("a")).started_at
        harness.clock.advance(1)
        await harness.settle(job, outcome)
        await harness.settle(job, Failed(BOOM))
        (attempt,) = await history(harness)
        assert (attempt.number, attempt.worker, attempt.started_at) == (1, "ann", started)
        assert (attempt.outcome, attempt.error) == (recorded, error)
        assert attempt.ended_at > attempt.started_at

    @case
    async def test_attempts_count_runs_whose_attempt_does_not_count(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=2)
        for worker, outcome in (("w1", Snoozed(0)), ("w2", Released()), ("w3", Failing(BOOM)), ("w4", Released())):
            (job,) = await harness.claim(worker=worker)
            await harness.settle(job, outcome)
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        assert await outcomes(harness) == [
            *((1, "snoozed"), (2, "released"), (3, "failed"), (4, "released")),
            (5, "completed"),
        ]
        assert [attempt.worker for attempt in await history(harness)] == ["w1", "w2", "w3", "w4", "ann"]
        assert (await harness.status("a")).attempts == 2

    @case
    async def test_a_batch_of_different_outcomes_is_recorded(self, harness: Harness) -> None:
        await harness.enqueue_all("a", "b", "c", "d", "e")
        ends: dict[str, Outcome] = {
            "a": Completed(b"1"), "b": Failing(BOOM), "c": Failed(BOOM), "d": Released(), "e": Snoozed(5),
        }  # fmt: skip
        await harness.ops.settle([Settlement(job.lease, ends[job.lease.id]) for job in await harness.claim()])
        recorded = [await outcomes(harness, job_id) for job_id in ends]
        assert recorded == [[(1, how)] for how in ("completed", "failed", "failed", "released", "snoozed")]

    @case
    async def test_a_reaped_run_is_stalled_and_the_late_outcome_adds_nothing(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=2)
        for _ in range(2):
            late = await harness.claim_one(**LATE)
            harness.clock.advance(11)
            await harness.ops.reap()
            assert await harness.settle(late, Completed(b"late")) is None
        assert await harness.state("a") == "failed"
        assert await outcomes(harness) == [(1, "stalled"), (2, "stalled")]
        for attempt in await history(harness):
            assert attempt.worker == "ann"
            assert attempt.error is not None
            assert attempt.error.type == "Stalled"

    @case
    async def test_a_run_that_took_too_long_is_expired(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.claim_one(expire=5)
        harness.clock.advance(6)
        await harness.ops.reap()
        assert await outcomes(harness) == [(1, "expired")]

    @pytest.mark.parametrize("reaped", [False, True])
    @case
    async def test_a_run_that_was_to_be_cancelled_is_cancelled(self, harness: Harness, reaped: bool) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one(**LATE)
        await harness.ops.cancel(QUEUE, "a", active=True)
        if reaped:
            harness.clock.advance(11)
            await harness.ops.reap()
        else:
            await harness.settle(job, Completed(b"1"))
        assert await harness.state("a") == "cancelled"
        (attempt,) = await history(harness)
        assert (attempt.number, attempt.outcome, attempt.error) == (1, "cancelled", None)

    @case
    async def test_the_history_survives_a_retry(self, harness: Harness) -> None:
        await harness.fail("a")
        before = await history(harness)
        await harness.ops.retry(QUEUE, "a")
        assert await history(harness) == before
        await harness.settle(await harness.claim_one(), Failed(BOOM))
        await harness.ops.retry_many(QUEUE, ["a"])
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        assert await outcomes(harness) == [(1, "failed"), (2, "failed"), (3, "completed")]
        assert (await history(harness))[:1] == before

    @case
    async def test_a_job_that_is_enqueued_again_starts_without_a_history(self, harness: Harness) -> None:
        await harness.fail("a")
        await harness.enqueue("a")
        assert await history(harness) == []
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        assert await outcomes(harness) == [(1, "completed")]

    @case
    async def test_deleted_and_pruned_jobs_have_no_attempts(self, harness: Harness) -> None:
        for job_id in ("a", "b"):
            await harness.enqueue(job_id, result_ttl=1, delete_after_seconds=10)
            await harness.settle(await harness.claim_one(), Failing(BOOM))
            await harness.settle(await harness.claim_one(), Failed(BOOM))
        await harness.ops.delete(QUEUE, ["a"])
        harness.clock.advance(11)
        assert await outcomes(harness, "b") == [(1, "failed"), (2, "failed")]
        assert await harness.ops.prune() == 1
        for job_id in ("a", "b"):
            await harness.enqueue(job_id)
            assert await history(harness, job_id) == []

    @case
    async def test_the_first_attempt_and_the_last_nineteen_are_kept(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=30)
        for _ in range(22):
            await harness.settle(await harness.claim_one(), Failing(BOOM))
        assert [n for n, _ in await outcomes(harness)] == [1, *range(4, 23)]
        job = await harness.claim_one(**LATE)
        assert [n for n, _ in await outcomes(harness)] == [1, *range(4, 23)]
        harness.clock.advance(11)
        await harness.ops.reap()
        assert job.lease.number == 23
        assert [n for n, _ in await outcomes(harness)] == [1, *range(5, 24)]
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        assert await outcomes(harness) == [
            (1, "failed"), *((n, "failed") for n in range(6, 23)), (23, "stalled"), (24, "completed"),
        ]  # fmt: skip
