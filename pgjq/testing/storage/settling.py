"""Storage contract: outcomes of runs, and fencing."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.storage.base import Settled, Settlement
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness


class Settling(Cases):
    """Outcomes of runs, and fencing."""

    @case
    async def test_a_completed_job_has_its_result(self, harness: Harness) -> None:
        await harness.complete("a", b"\0result")
        status = await harness.status("a")
        assert (status.state, status.result, status.attempts) == ("completed", b"\0result", 1)
        assert status.finished_at is not None
        assert status.error is None

    @case
    async def test_a_failed_job_has_its_error(self, harness: Harness) -> None:
        await harness.fail("a")
        status = await harness.status("a")
        assert (status.state, status.error, status.result) == ("failed", BOOM, None)

    @case
    async def test_a_failing_job_shows_its_error_and_runs_again(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert await harness.settle(await harness.claim_one(), Failing(BOOM)) == "failing"
        status = await harness.status("a")
        assert (status.state, status.error, status.attempts) == ("failing", BOOM, 1)
        assert (await harness.claim_one()).attempts == 2

    @case
    async def test_a_retry_waits_for_its_delay(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=10))
        harness.clock.advance(9)
        assert await harness.claim() == []
        harness.clock.advance(1)
        assert len(await harness.claim()) == 1

    @case
    async def test_a_released_job_gets_its_attempt_back(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=1)
        assert await harness.settle(await harness.claim_one(), Released()) == "queued"
        assert (await harness.status("a")).attempts == 0
        again = await harness.claim_one()
        assert (again.attempts, again.lease.number) == (1, 2)

    @case
    async def test_a_released_retry_is_failing_again(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.settle(await harness.claim_one(), Failing(BOOM))
        assert await harness.settle(await harness.claim_one(), Released()) == "failing"
        assert (await harness.status("a")).attempts == 1

    @case
    async def test_a_snoozed_job_comes_back_without_counting(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert await harness.settle(await harness.claim_one(), Snoozed(delay=5)) == "queued"
        assert await harness.claim() == []
        harness.clock.advance(5)
        assert (await harness.claim_one()).attempts == 1

    @case
    async def test_a_run_can_end_as_cancelled(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert await harness.settle(await harness.claim_one(), Cancelled()) == "cancelled"
        assert await harness.state("a") == "cancelled"

    @case
    async def test_a_batch_of_different_outcomes_is_settled_one_by_one(self, harness: Harness) -> None:
        await harness.enqueue_all("a", "b", "c", "d")
        jobs = await harness.claim()
        outcomes = [Completed(b"1"), Failing(BOOM), Failed(BOOM), Released()]
        settled = await harness.ops.settle([Settlement(j.lease, o) for j, o in zip(jobs, outcomes, strict=True)])
        assert [s.state for s in settled] == ["completed", "failing", "failed", "queued"]
        assert [s.lease for s in settled] == [job.lease for job in jobs]

    @case
    async def test_settling_twice_changes_nothing(self, harness: Harness) -> None:
        job = await harness.complete("a", b"first")
        assert await harness.settle(job, Completed(b"second")) is None
        assert await harness.settle(job, Failed(BOOM)) is None
        assert (await harness.status("a")).result == b"first"

    @case
    @pytest.mark.parametrize(
        "late", [Completed(b"late"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1), Cancelled()]
    )
    async def test_an_old_lease_changes_nothing(self, harness: Harness, late: Any) -> None:
        await harness.enqueue("a")
        stalled = await harness.claim_one(lease=10, heartbeat=3)
        harness.clock.advance(10)
        await harness.ops.reap()
        assert await harness.settle(stalled, late) is None
        current = await harness.claim_one(worker="bob")
        assert await harness.settle(stalled, late) is None
        assert (await harness.status("a")).worker == "bob"
        assert await harness.settle(current, Completed(b"good")) == "completed"
        assert await harness.settle(stalled, late) is None
        assert (await harness.status("a")).result == b"good"

    @case
    async def test_a_result_is_gone_for_readers_when_its_time_has_passed(self, harness: Harness) -> None:
        await harness.complete("short", result_ttl=10)
        await harness.complete("long", result_ttl=20)
        harness.clock.advance(10)
        assert (await harness.status("short")).result is None
        assert (await harness.status("long")).result == b'"ok"'
        assert await harness.state("short") == "completed"

    @case
    async def test_an_error_is_gone_for_readers_when_its_time_has_passed(self, harness: Harness) -> None:
        await harness.fail("a", result_ttl=10)
        harness.clock.advance(10)
        assert (await harness.status("a")).error is None

    @case
    async def test_nothing_to_settle_is_no_trouble(self, harness: Harness) -> None:
        assert await harness.ops.settle([]) == []

    @case
    async def test_rivals_for_one_lease_settle_it_once(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()
        states = await harness.together(8, lambda n: harness.settle(job, Completed(str(n).encode())))
        assert sorted(state or "" for state in states) == [""] * 7 + ["completed"]

    @case
    @pytest.mark.parametrize(
        ("outcome", "state"),
        [
            (Completed(b"1"), "completed"),
            (Failed(BOOM), "failed"),
            (Failing(BOOM, 60), "failing"),
            (Released(), "queued"),
            (Snoozed(60), "queued"),
            (Cancelled(), "cancelled"),
        ],
    )
    async def test_a_settlement_whose_answer_was_lost_can_be_found(
        self, harness: Harness, outcome: Any, state: Any
    ) -> None:
        await harness.enqueue_all("a", "b")
        made, missing = [Settlement(job.lease, outcome) for job in await harness.claim()]
        assert [s.state for s in await harness.ops.find_settled([made, missing])] == [None, None]
        await harness.ops.settle([made])
        found = await harness.ops.find_settled([missing, made])
        assert found == [Settled(missing.lease, None), Settled(made.lease, state)]

    @case
    @pytest.mark.parametrize("max_attempts", [1, 2])
    @pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1)])
    async def test_what_a_reaper_did_is_no_settlement(self, harness: Harness, outcome: Any, max_attempts: int) -> None:
        await harness.enqueue("a", max_attempts=max_attempts)
        stalled = await harness.claim_one(lease=10, heartbeat=3)
        harness.clock.advance(10)
        await harness.ops.reap()
        assert [s.state for s in await harness.ops.find_settled([Settlement(stalled.lease, outcome)])] == [None]

    @case
    @pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1)])
    async def test_what_an_operator_did_is_no_settlement(self, harness: Harness, outcome: Any) -> None:
        await harness.enqueue("a")
        taken = await harness.claim_one()
        assert await harness.ops.release(QUEUE, ["a"]) == 1
        assert [s.state for s in await harness.ops.find_settled([Settlement(taken.lease, outcome)])] == [None]

    @case
    async def test_a_settlement_can_be_found_after_the_job_was_cancelled(self, harness: Harness) -> None:
        await harness.enqueue("a")
        made = Settlement((await harness.claim_one()).lease, Failing(BOOM))
        await harness.ops.settle([made])
        await harness.ops.cancel(QUEUE, "a")
        assert [s.state for s in await harness.ops.find_settled([made])] == ["failing"]

    @case
    async def test_a_settlement_of_a_job_that_runs_again_is_found_or_unknown(self, harness: Harness) -> None:
        await harness.enqueue("a")
        claimed = await harness.claim_one()
        await harness.settle(claimed, Failing(BOOM))
        await harness.claim_one()
        made, missing = Settlement(claimed.lease, Failing(BOOM)), Settlement(claimed.lease, Completed(b"1"))
        found = [s.state for s in await harness.ops.find_settled([made, missing])]
        assert found in (["failing", None], [None, None])  # Redis knows only the last run.

    @case
    async def test_a_settlement_is_not_mistaken_for_that_of_a_later_run(self, harness: Harness) -> None:
        await harness.enqueue("a")
        stalled = await harness.claim_one(lease=10, heartbeat=3)
        harness.clock.advance(10)
        await harness.ops.reap()
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        assert [s.state for s in await harness.ops.find_settled([Settlement(stalled.lease, Completed(b"1"))])] == [None]

    @case
    async def test_no_settlements_to_find_is_no_trouble(self, harness: Harness) -> None:
        assert await harness.ops.find_settled([]) == []
