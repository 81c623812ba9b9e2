"""Storage contract: release running jobs, and reschedule waiting ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.definition import define
from pgjq.outcome import Completed, Failing, Snoozed
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness
from pgjq.testing.storage.policy_cases import definitions

if TYPE_CHECKING:
    from pgjq.outcome import Outcome

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


async def claimed_ids(harness: Harness, limit: int = 10) -> list[str]:
    """Claim jobs; return their ids in the order in which they run."""
    return [job.lease.id for job in await harness.claim(limit)]


class Steering(Cases):
    """What operators do to single jobs: release and reschedule."""

    @case
    async def test_a_released_job_runs_again_and_its_old_run_is_refused(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=1)
        old = await harness.claim_one()
        assert await harness.ops.release(QUEUE, ["a", "unknown"]) == 1
        status = await harness.status("a")
        assert (status.state, status.attempts, status.worker) == ("queued", 0, None)
        assert (await harness.ops.heartbeat([old.lease])).lost == [old.lease]
        assert await harness.settle(old, Completed(b"late")) is None
        new = await harness.claim_one()
        assert (new.attempts, new.lease.number) == (1, old.lease.number + 1)
        assert await harness.settle(new, Completed(b"1")) == "completed"
        runs = [(a.number, a.worker, a.outcome, a.error) for a in await harness.ops.attempts(QUEUE, "a")]
        assert runs == [(1, "ann", "lease_lost", None), (2, "ann", "completed", None)]

    @case
    async def test_a_released_second_attempt_is_failing_again(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=2)
        await harness.settle(await harness.claim_one(), Failing(BOOM))
        await harness.claim_one()
        assert await harness.ops.release(QUEUE, ["a"]) == 1
        status = await harness.status("a")
        assert (status.state, status.attempts, status.error) == ("failing", 1, BOOM)

    @case
    async def test_only_running_jobs_are_released(self, harness: Harness) -> None:
        await harness.complete("done")
        await harness.fail("broken")
        await harness.enqueue("waiting")
        assert await harness.ops.release(QUEUE, ["done", "broken", "waiting"]) == 0
        assert await harness.ops.release("no such queue", ["a"]) == 0
        assert [await harness.state(job_id) for job_id in ("done", "broken", "waiting")] == [
            *("completed", "failed", "queued"),
        ]

    @case
    async def test_a_released_job_that_was_to_be_cancelled_is_cancelled(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.claim_one()
        await harness.ops.cancel(QUEUE, "a", active=True)
        assert await harness.ops.release(QUEUE, ["a"]) == 1
        assert await harness.state("a") == "cancelled"
        assert [a.outcome for a in await harness.ops.attempts(QUEUE, "a")] == ["cancelled"]

    @requires("definitions")
    @case
    async def test_a_released_key_is_free_for_its_next_job(self, harness: Harness) -> None:
        await definitions(harness).create_queue(QUEUE, define(QUEUE, {"policy": "singleton"}))
        await harness.enqueue("a", singleton_key="k")
        await harness.enqueue("b", singleton_key="k", priority=1)
        assert await claimed_ids(harness) == ["b"]
        assert await claimed_ids(harness) == []
        await harness.ops.release(QUEUE, ["b"])
        assert await claimed_ids(harness) == ["b"]

    @case
    async def test_a_waiting_job_gets_another_time(self, harness: Harness) -> None:
        await harness.enqueue("a")
        later = (await harness.status("a")).created_at + timedelta(seconds=60)
        changed = await harness.ops.reschedule(QUEUE, "a", run_at=later)
        assert changed is not None
        assert (changed.state, changed.run_at, changed.priority) == ("queued", later, 0)
        assert changed == await harness.status("a")
        assert await harness.claim() == []
        harness.clock.advance(61)
        assert await claimed_ids(harness) == ["a"]

    @case
    async def test_a_deferred_job_runs_now(self, harness: Harness) -> None:
        await harness.enqueue("a", delay=3600)
        assert await harness.claim() == []
        await harness.ops.reschedule(QUEUE, "a", run_at=LONG_AGO)
        assert await claimed_ids(harness) == ["a"]

    @pytest.mark.parametrize("outcome", [Failing(BOOM, delay=3600), Snoozed(3600)])
    @case
    async def test_a_job_between_its_runs_runs_now(self, harness: Harness, outcome: Outcome) -> None:
        await harness.enqueue("a")
        await harness.settle(await harness.claim_one(), outcome)
        before = await harness.state("a")
        changed = await harness.ops.reschedule(QUEUE, "a", run_at=LONG_AGO)
        assert changed is not None
        assert changed.state == before
        assert await claimed_ids(harness) == ["a"]

    @case
    async def test_jobs_run_in_the_order_of_their_new_priorities(self, harness: Harness) -> None:
        for job_id, priority in (("a", 5), ("b", 0), ("c", 0), ("d", 3)):
            await harness.enqueue(job_id, priority=priority)
        await harness.ops.reschedule(QUEUE, "c", priority=9)
        await harness.ops.reschedule(QUEUE, "a", priority=-1)
        assert (await harness.status("c")).priority == 9
        assert await claimed_ids(harness, 1) == ["c"]
        assert await claimed_ids(harness) == ["d", "b", "a"]

    @case
    async def test_a_new_priority_survives_a_failed_run(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.enqueue("b")
        await harness.ops.reschedule(QUEUE, "b", priority=1)
        (job,) = await harness.claim(1)
        assert job.lease.id == "b"
        await harness.settle(job, Failing(BOOM))
        assert await claimed_ids(harness, 1) == ["b"]

    @case
    async def test_a_job_that_does_not_wait_is_left_alone(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.claim_one()
        await harness.complete("b")
        for job_id in ("a", "b"):
            before = await harness.status(job_id)
            assert await harness.ops.reschedule(QUEUE, job_id, run_at=LONG_AGO, priority=7) == before
            assert await harness.status(job_id) == before
        assert await harness.ops.reschedule(QUEUE, "unknown", priority=7) is None
        assert await harness.ops.reschedule("no such queue", "a", priority=7) is None

    @requires("definitions")
    @case
    async def test_a_deferred_first_job_lets_the_next_of_its_key_run(self, harness: Harness) -> None:
        await definitions(harness).create_queue(QUEUE, define(QUEUE, {"policy": "singleton"}))
        for job_id in ("a", "b", "c"):
            await harness.enqueue(job_id, singleton_key="k")
        assert await claimed_ids(harness) == ["a"]
        await harness.ops.release(QUEUE, ["a"])
        later = (await harness.status("a")).created_at + timedelta(seconds=60)
        await harness.ops.reschedule(QUEUE, "a", run_at=later)
        await harness.ops.reschedule(QUEUE, "c", priority=1)
        assert await claimed_ids(harness) == ["c"]

    @case
    async def test_reschedule_and_claim_race_and_one_of_them_wins(self, harness: Harness) -> None:
        for round_ in range(10):
            job_id = f"a{round_}"
            await harness.enqueue(job_id)
            later = (await harness.status(job_id)).created_at + timedelta(days=1)

            async def race(n: int, job_id: str = job_id, later: datetime = later) -> Any:
                if n % 2:
                    changed = await harness.ops.reschedule(QUEUE, job_id, run_at=later)
                    return changed is not None and changed.state == "queued" and changed.run_at == later
                return "claimed" if await harness.claim() else "nothing"

            answers = await harness.together(4, race)
            assert (True in answers) != ("claimed" in answers)
