"""The contract: what becomes of jobs whose worker did not come back."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.outcome import Completed
from pgjq.testing.bench import QUEUE, Bench
from pgjq.testing.cases import Cases, case


class Reaping(Cases):
    """What becomes of jobs whose worker did not come back."""

    @case
    async def test_a_job_whose_lease_lapsed_runs_again(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.claim_one(lease=30, heartbeat=10)
        bench.clock.advance(29)
        assert await bench.ops.reap() == []
        bench.clock.advance(1)
        (stalled,) = await bench.ops.reap()
        assert (stalled.queue, stalled.id, stalled.count) == (QUEUE, "a", 1)
        assert (stalled.action, stalled.reason) == ("recovered", "lease")
        assert await bench.ops.reap() == []
        status = await bench.status("a")
        assert (status.state, status.worker, status.locked_until, status.stalled) == ("failing", None, None, 1)
        assert (await bench.claim_one()).attempts == 2

    @case
    async def test_no_attempts_left_is_failed(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        await bench.claim_one(lease=30, heartbeat=10)
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["failed"]
        status = await bench.status("a")
        assert status.state == "failed"
        assert status.error is not None
        assert (status.error.type, "ann" in status.error.message) == ("Stalled", True)

    @case
    async def test_no_attempts_left_runs_once_more_if_the_policy_says_so(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        await bench.claim_one(lease=30, heartbeat=10, reap_exhausted="requeue")
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["recovered"]
        assert (await bench.claim_one()).attempts == 2

    @case
    @pytest.mark.parametrize("allowed", [0, 1, 2])
    async def test_one_stall_more_than_allowed_is_failed(self, bench: Bench, allowed: int) -> None:
        await bench.enqueue("a", max_attempts=10)
        actions: list[str] = []
        for _ in range(allowed + 1):
            await bench.claim_one(lease=30, heartbeat=10, max_stalled=allowed)
            bench.clock.advance(30)
            actions += [r.action for r in await bench.ops.reap()]
        assert actions == ["recovered"] * allowed + ["failed"]

    @case
    async def test_a_wish_to_cancel_comes_first_and_is_no_stall(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        await bench.claim_one(lease=30, heartbeat=10, max_stalled=0)
        await bench.ops.cancel(QUEUE, "a", active=True)
        bench.clock.advance(30)
        (stalled,) = await bench.ops.reap()
        assert (stalled.action, stalled.count) == ("cancelled", 0)
        assert await bench.state("a") == "cancelled"

    @case
    async def test_stale_age_is_patience_with_leases_but_not_with_expiry(self, bench: Bench) -> None:
        await bench.enqueue_all("lease", "expired")
        (first,) = await bench.claim(1, lease=10, heartbeat=3)
        await bench.claim(1, lease=None, heartbeat=None, expire=10)
        bench.clock.advance(10)
        assert [r.id for r in await bench.ops.reap(stale_age=5)] == ["expired"]
        bench.clock.advance(5)
        assert [r.id for r in await bench.ops.reap(stale_age=5)] == [first.lease.id]

    @case
    async def test_the_most_overdue_first_and_no_more_than_asked_for(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b", "c")
        for _ in range(3):
            await bench.claim(1, lease=30, heartbeat=10)
            bench.clock.advance(1)
        bench.clock.advance(60)
        assert [r.id for r in await bench.ops.reap(limit=2)] == ["a", "b"]
        assert [r.id for r in await bench.ops.reap(limit=2)] == ["c"]

    @case
    async def test_a_stalled_job_waits_for_its_retry_delay(self, bench: Bench) -> None:
        await bench.enqueue("a", retry_delay=7)
        await bench.claim_one(lease=30, heartbeat=10)
        bench.clock.advance(30)
        await bench.ops.reap()
        bench.clock.advance(6)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert len(await bench.claim()) == 1

    @case
    async def test_any_number_of_reapers_take_each_job_once(self, bench: Bench) -> None:
        ids = [f"{n:03}" for n in range(100)]
        await bench.enqueue_all(*ids)
        await bench.claim(100, lease=10, heartbeat=3)
        bench.clock.advance(10)
        taken = await bench.together(8, lambda _: self._reap_until_empty(bench))
        assert sorted(job_id for ids_ in taken for job_id in ids_) == ids

    async def _reap_until_empty(self, bench: Bench) -> list[str]:
        taken: list[str] = []
        while found := await bench.ops.reap(limit=9):
            taken += [r.id for r in found]
        return taken

    @case
    async def test_completing_races_with_reaping_and_one_of_them_wins(self, bench: Bench) -> None:
        for round_ in range(10):
            await bench.enqueue(f"a{round_}", max_attempts=1)
            job = await bench.claim_one(lease=10, heartbeat=3)
            bench.clock.advance(10)

            async def race(n: int, job: Any = job) -> str:
                if n % 2:
                    return await bench.settle(job, Completed(b"1")) or "lost"
                return "".join(r.action for r in await bench.ops.reap()) or "nothing"

            outcomes = await bench.together(4, race)
            assert ("completed" in outcomes) != ("failed" in outcomes)
            assert await bench.state(job.lease.id) in outcomes

    @case
    async def test_the_next_deadline_is_the_earliest(self, bench: Bench) -> None:
        assert await bench.ops.next_deadline() is None
        await bench.enqueue_all("a", "b")
        await bench.claim(1, lease=30, heartbeat=10)
        await bench.claim(1, lease=20, heartbeat=10)
        assert await bench.ops.next_deadline() == pytest.approx(20)
        bench.clock.advance(25)
        assert await bench.ops.next_deadline() == pytest.approx(-5)
