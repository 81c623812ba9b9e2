"""Storage contract: outcomes of runs, and fencing."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.storage.base import Settled, Settlement
from pgjq.testing.bench import BOOM, Bench
from pgjq.testing.cases import Cases, case


class Settling(Cases):
    """Outcomes of runs, and fencing."""

    @case
    async def test_a_completed_job_has_its_result(self, bench: Bench) -> None:
        await bench.complete("a", b"\0result")
        status = await bench.status("a")
        assert (status.state, status.result, status.attempts) == ("completed", b"\0result", 1)
        assert status.finished_at is not None
        assert status.error is None

    @case
    async def test_a_failed_job_has_its_error(self, bench: Bench) -> None:
        await bench.fail("a")
        status = await bench.status("a")
        assert (status.state, status.error, status.result) == ("failed", BOOM, None)

    @case
    async def test_a_failing_job_shows_its_error_and_runs_again(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert await bench.settle(await bench.claim_one(), Failing(BOOM)) == "failing"
        status = await bench.status("a")
        assert (status.state, status.error, status.attempts) == ("failing", BOOM, 1)
        assert (await bench.claim_one()).attempts == 2

    @case
    async def test_a_retry_waits_for_its_delay(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=10))
        bench.clock.advance(9)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert len(await bench.claim()) == 1

    @case
    async def test_a_released_job_gets_its_attempt_back(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        assert await bench.settle(await bench.claim_one(), Released()) == "queued"
        assert (await bench.status("a")).attempts == 0
        again = await bench.claim_one()
        assert (again.attempts, again.lease.number) == (1, 2)

    @case
    async def test_a_released_retry_is_failing_again(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.settle(await bench.claim_one(), Failing(BOOM))
        assert await bench.settle(await bench.claim_one(), Released()) == "failing"
        assert (await bench.status("a")).attempts == 1

    @case
    async def test_a_snoozed_job_comes_back_without_counting(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert await bench.settle(await bench.claim_one(), Snoozed(delay=5)) == "queued"
        assert await bench.claim() == []
        bench.clock.advance(5)
        assert (await bench.claim_one()).attempts == 1

    @case
    async def test_a_run_can_end_as_cancelled(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert await bench.settle(await bench.claim_one(), Cancelled()) == "cancelled"
        assert await bench.state("a") == "cancelled"

    @case
    async def test_a_batch_of_different_outcomes_is_settled_one_by_one(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b", "c", "d")
        jobs = await bench.claim()
        outcomes = [Completed(b"1"), Failing(BOOM), Failed(BOOM), Released()]
        settled = await bench.ops.settle([Settlement(j.lease, o) for j, o in zip(jobs, outcomes, strict=True)])
        assert [s.state for s in settled] == ["completed", "failing", "failed", "queued"]
        assert [s.lease for s in settled] == [job.lease for job in jobs]

    @case
    async def test_settling_twice_changes_nothing(self, bench: Bench) -> None:
        job = await bench.complete("a", b"first")
        assert await bench.settle(job, Completed(b"second")) is None
        assert await bench.settle(job, Failed(BOOM)) is None
        assert (await bench.status("a")).result == b"first"

    @case
    @pytest.mark.parametrize(
        "late", [Completed(b"late"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1), Cancelled()]
    )
    async def test_an_old_lease_changes_nothing(self, bench: Bench, late: Any) -> None:
        await bench.enqueue("a")
        stalled = await bench.claim_one(lease=10, heartbeat=3)
        bench.clock.advance(10)
        await bench.ops.reap()
        assert await bench.settle(stalled, late) is None
        current = await bench.claim_one(worker="bob")
        assert await bench.settle(stalled, late) is None
        assert (await bench.status("a")).worker == "bob"
        assert await bench.settle(current, Completed(b"good")) == "completed"
        assert await bench.settle(stalled, late) is None
        assert (await bench.status("a")).result == b"good"

    @case
    async def test_a_result_is_gone_for_readers_when_its_time_has_passed(self, bench: Bench) -> None:
        await bench.complete("short", result_ttl=10)
        await bench.complete("long", result_ttl=20)
        bench.clock.advance(10)
        assert (await bench.status("short")).result is None
        assert (await bench.status("long")).result == b'"ok"'
        assert await bench.state("short") == "completed"

    @case
    async def test_an_error_is_gone_for_readers_when_its_time_has_passed(self, bench: Bench) -> None:
        await bench.fail("a", result_ttl=10)
        bench.clock.advance(10)
        assert (await bench.status("a")).error is None

    @case
    async def test_nothing_to_settle_is_no_trouble(self, bench: Bench) -> None:
        assert await bench.ops.settle([]) == []

    @case
    async def test_rivals_for_one_lease_settle_it_once(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        states = await bench.together(8, lambda n: bench.settle(job, Completed(str(n).encode())))
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
        self, bench: Bench, outcome: Any, state: Any
    ) -> None:
        await bench.enqueue_all("a", "b")
        made, missing = [Settlement(job.lease, outcome) for job in await bench.claim()]
        assert [s.state for s in await bench.ops.find_settled([made, missing])] == [None, None]
        await bench.ops.settle([made])
        found = await bench.ops.find_settled([missing, made])
        assert found == [Settled(missing.lease, None), Settled(made.lease, state)]

    @case
    @pytest.mark.parametrize("max_attempts", [1, 2])
    @pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM), Failing(BOOM)])
    async def test_what_a_reaper_did_is_no_settlement(self, bench: Bench, outcome: Any, max_attempts: int) -> None:
        await bench.enqueue("a", max_attempts=max_attempts)
        stalled = await bench.claim_one(lease=10, heartbeat=3)
        bench.clock.advance(10)
        await bench.ops.reap()
        assert [s.state for s in await bench.ops.find_settled([Settlement(stalled.lease, outcome)])] == [None]

    @case
    async def test_a_settlement_is_not_mistaken_for_that_of_a_later_run(self, bench: Bench) -> None:
        await bench.enqueue("a")
        stalled = await bench.claim_one(lease=10, heartbeat=3)
        bench.clock.advance(10)
        await bench.ops.reap()
        await bench.settle(await bench.claim_one(), Completed(b"1"))
        assert [s.state for s in await bench.ops.find_settled([Settlement(stalled.lease, Completed(b"1"))])] == [None]

    @case
    async def test_no_settlements_to_find_is_no_trouble(self, bench: Bench) -> None:
        assert await bench.ops.find_settled([]) == []
