"""Storage contract: stalled jobs."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.outcome import Completed, Failing, Released
from pgjq.storage.workers import Registration
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness


class Reaping(Cases):
    """What a reaper does with stalled jobs."""

    @case
    async def test_a_job_whose_lease_lapsed_runs_again(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.claim_one(lease=30, heartbeat=10)
        harness.clock.advance(29)
        assert await harness.ops.reap() == []
        harness.clock.advance(1)
        (stalled,) = await harness.ops.reap()
        assert (stalled.queue, stalled.id, stalled.count) == (QUEUE, "a", 1)
        assert (stalled.action, stalled.reason) == ("recovered", "lease")
        assert await harness.ops.reap() == []
        status = await harness.status("a")
        assert (status.state, status.worker, status.locked_until, status.stalled) == ("failing", None, None, 1)
        assert (await harness.claim_one()).attempts == 2

    @case
    async def test_no_attempts_left_is_failed(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=1)
        await harness.claim_one(lease=30, heartbeat=10)
        harness.clock.advance(30)
        assert [r.action for r in await harness.ops.reap()] == ["failed"]
        status = await harness.status("a")
        assert status.state == "failed"
        assert status.error is not None
        assert (status.error.type, "ann" in status.error.message) == ("Stalled", True)

    @case
    async def test_no_attempts_left_runs_once_more_if_the_policy_says_so(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=1)
        await harness.claim_one(lease=30, heartbeat=10, reap_exhausted="requeue")
        harness.clock.advance(30)
        assert [r.action for r in await harness.ops.reap()] == ["recovered"]
        assert (await harness.claim_one()).attempts == 2

    @case
    @pytest.mark.parametrize("allowed", [0, 1, 2])
    async def test_one_stall_more_than_allowed_is_failed(self, harness: Harness, allowed: int) -> None:
        await harness.enqueue("a", max_attempts=10)
        actions: list[str] = []
        for _ in range(allowed + 1):
            await harness.claim_one(lease=30, heartbeat=10, max_stalled=allowed)
            harness.clock.advance(30)
            actions += [r.action for r in await harness.ops.reap()]
        assert actions == ["recovered"] * allowed + ["failed"]

    @case
    async def test_a_cancel_request_comes_first_and_is_no_stall(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=1)
        await harness.claim_one(lease=30, heartbeat=10, max_stalled=0)
        await harness.ops.cancel(QUEUE, "a", active=True)
        harness.clock.advance(30)
        (stalled,) = await harness.ops.reap()
        assert (stalled.action, stalled.count) == ("cancelled", 0)
        assert await harness.state("a") == "cancelled"

    @case
    async def test_a_job_that_takes_its_workers_down_fails_with_a_record_of_them(self, harness: Harness) -> None:
        await harness.enqueue("poison", payload=b"pill")
        taken: list[Any] = []
        for worker in ("ann", "bob", "cid"):
            (job,) = await harness.claim(worker=worker, lease=10, heartbeat=3)
            await harness.ops.save_checkpoint(job.lease, b"page 7")
            harness.clock.advance(10)
            taken += await harness.ops.reap()
            assert (await harness.status("poison")).stalled_on[-1] == worker
        assert [(r.action, r.worker, r.payload) for r in taken] == [
            ("recovered", "ann", None),
            ("recovered", "bob", None),
            ("failed", "cid", b"pill"),
        ]
        status = await harness.status("poison")
        assert (status.state, status.stalled, status.stalled_on) == ("failed", 3, ("ann", "bob", "cid"))
        assert status.error is not None
        assert (status.error.type, status.error.message) == ("Stalled", "its worker went silent (worker cid)")

    @case
    async def test_a_job_that_runs_again_tells_why_it_stalled(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.claim_one(lease=None, heartbeat=None, expire=10)
        harness.clock.advance(10)
        await harness.ops.reap()
        error = (await harness.status("a")).error
        assert error is not None
        assert (error.type, error.message) == ("Stalled", "the attempt took too long (worker ann)")

    @case
    async def test_retry_forgets_the_stalls_of_an_earlier_life(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=1)
        await harness.claim_one(lease=10, heartbeat=3)
        harness.clock.advance(10)
        await harness.ops.reap()
        status = await harness.ops.retry(QUEUE, "a")
        assert status is not None
        assert (status.stalled, status.stalled_on, status.error) == (0, (), None)

    @case
    async def test_the_record_of_stalls_has_an_end(self, harness: Harness) -> None:
        await harness.enqueue("a")
        for n in range(23):
            await harness.claim(worker=f"{n}", lease=10, heartbeat=3, reap_exhausted="requeue")
            harness.clock.advance(10)
            await harness.ops.reap()
        status = await harness.status("a")
        assert (status.stalled, status.stalled_on) == (23, tuple(f"{n}" for n in range(3, 23)))

    @case
    async def test_subscribers_hear_what_became_of_stalled_jobs(self, harness: Harness) -> None:
        heard = await harness.ops.subscribe()
        await harness.enqueue("recovered")
        await harness.enqueue("failed", max_attempts=1)
        await harness.enqueue("cancelled")
        await harness.claim(2, lease=10, heartbeat=3)
        await harness.claim(1, lease=None, heartbeat=None, expire=10)
        await harness.ops.cancel(QUEUE, "cancelled", active=True)
        harness.clock.advance(10)
        await harness.ops.reap()
        events: list[Any] = []
        while sum(e.name == "stalled" for e in events) < 3 or events[-1].name == "stalled":
            events += await heard.next(10)
        stalled = {e.id: (e.queue, e.count, e.action, e.reason) for e in events if e.name == "stalled"}
        assert stalled == {
            "recovered": (QUEUE, 1, "recovered", "lease"),
            "failed": (QUEUE, 1, "failed", "lease"),
            "cancelled": (QUEUE, 0, "cancelled", "expired"),
        }
        await heard.close()

    @case
    async def test_stale_age_is_patience_with_leases_but_not_with_expiry(self, harness: Harness) -> None:
        await harness.enqueue_all("lease", "expired")
        (first,) = await harness.claim(1, lease=10, heartbeat=3)
        await harness.claim(1, lease=None, heartbeat=None, expire=10)
        harness.clock.advance(10)
        assert [r.id for r in await harness.ops.reap(stale_age=5)] == ["expired"]
        harness.clock.advance(5)
        assert [r.id for r in await harness.ops.reap(stale_age=5)] == [first.lease.id]

    @case
    async def test_the_most_overdue_first_and_no_more_than_asked_for(self, harness: Harness) -> None:
        await harness.enqueue_all("a", "b", "c")
        for _ in range(3):
            await harness.claim(1, lease=30, heartbeat=10)
            harness.clock.advance(1)
        harness.clock.advance(60)
        assert [r.id for r in await harness.ops.reap(limit=2)] == ["a", "b"]
        assert [r.id for r in await harness.ops.reap(limit=2)] == ["c"]

    @case
    async def test_a_stalled_job_waits_for_its_retry_delay(self, harness: Harness) -> None:
        await harness.enqueue("a", retry_delay=7)
        await harness.claim_one(lease=30, heartbeat=10)
        harness.clock.advance(30)
        await harness.ops.reap()
        harness.clock.advance(6)
        assert await harness.claim() == []
        harness.clock.advance(1)
        assert len(await harness.claim()) == 1

    @case
    async def test_a_stalled_job_backs_off_like_one_that_failed(self, harness: Harness) -> None:
        await harness.enqueue("a", retry_backoff=True, retry_delay=3, retry_delay_max=20, max_attempts=9)
        await harness.enqueue("unset", retry_backoff=True, max_attempts=9)
        await harness.enqueue("flat", retry_delay=3, retry_delay_max=2, max_attempts=9)
        for low, high, unset in ((3, 6, 1), (6, 12, 2), (12, 20, 4), (20, 20, 8)):
            assert len(await harness.claim(3, lease=10, heartbeat=3)) == 3
            harness.clock.advance(10)
            await harness.ops.reap()
            delays = await self._delays(harness, "a", "unset", "flat")
            assert low <= delays["a"] <= high
            assert unset <= delays["unset"] <= 2 * unset
            assert delays["flat"] == 3
            harness.clock.advance(20)

    async def _delays(self, harness: Harness, *ids: str) -> dict[str, float]:
        """Return how long jobs have to wait from now on; a new job gives the current time."""
        await harness.enqueue("now", queue="clock")
        now = (await harness.status("now", "clock")).created_at
        await harness.ops.delete("clock", ["now"])
        found = await harness.ops.get(QUEUE, ids)
        return {i: (status.run_at - now).total_seconds() for i, status in found.items() if status.run_at is not None}

    @case
    async def test_what_has_ended_or_waits_is_not_taken_back(self, harness: Harness) -> None:
        await harness.complete("completed")
        await harness.fail("failed")
        await harness.enqueue("failing")
        await harness.settle(await harness.claim_one(lease=10, heartbeat=3), Failing(BOOM, delay=10_000))
        await harness.enqueue("released")
        await harness.settle(await harness.claim_one(lease=10, heartbeat=3), Released())
        harness.clock.advance(1000)
        assert await harness.ops.next_deadline() is None
        assert await harness.ops.reap() == []
        ids = ["completed", "failed", "failing", "released"]
        found = await harness.ops.get(QUEUE, ids)
        assert [found[job_id].state for job_id in ids] == ["completed", "failed", "failing", "queued"]
        assert {status.locked_until for status in found.values()} == {None}

    @case
    async def test_a_worker_whose_record_lapsed_keeps_its_job_and_loses_it_by_the_lease_alone(
        self, harness: Harness
    ) -> None:
        await harness.ops.worker_seen(Registration("1", "ann", (QUEUE,), heartbeat=300))
        await harness.enqueue_all("done", "lost")
        done, lost = await harness.claim(worker="ann", lease=1000, heartbeat=300, expire=None)
        harness.clock.advance(900)
        assert [worker.alive for worker in await harness.ops.workers()] == [False]
        assert await harness.ops.reap() == []
        assert await harness.settle(done, Completed(b"1")) == "completed"
        harness.clock.advance(100)
        assert [(r.id, r.worker, r.action) for r in await harness.ops.reap()] == [("lost", "ann", "recovered")]
        assert await harness.settle(lost, Completed(b"late")) is None

    @case
    async def test_any_number_of_reapers_take_each_job_once(self, harness: Harness) -> None:
        ids = [f"{n:03}" for n in range(100)]
        await harness.enqueue_all(*ids)
        await harness.claim(100, lease=10, heartbeat=3)
        harness.clock.advance(10)
        taken = await harness.together(8, lambda _: self._reap_until_empty(harness))
        assert sorted(job_id for ids_ in taken for job_id in ids_) == ids

    async def _reap_until_empty(self, harness: Harness) -> list[str]:
        taken: list[str] = []
        while found := await harness.ops.reap(limit=9):
            taken += [r.id for r in found]
        return taken

    @case
    async def test_completing_races_with_reaping_and_one_of_them_wins(self, harness: Harness) -> None:
        for round_ in range(10):
            await harness.enqueue(f"a{round_}", max_attempts=1)
            job = await harness.claim_one(lease=10, heartbeat=3)
            harness.clock.advance(10)

            async def race(n: int, job: Any = job) -> str:
                if n % 2:
                    return await harness.settle(job, Completed(b"1")) or "lost"
                return "".join(r.action for r in await harness.ops.reap()) or "nothing"

            outcomes = await harness.together(4, race)
            assert ("completed" in outcomes) != ("failed" in outcomes)
            assert await harness.state(job.lease.id) in outcomes

    @case
    async def test_the_next_deadline_is_the_earliest(self, harness: Harness) -> None:
        assert await harness.ops.next_deadline() is None
        await harness.enqueue_all("a", "b")
        await harness.claim(1, lease=30, heartbeat=10)
        await harness.claim(1, lease=20, heartbeat=10)
        assert await harness.ops.next_deadline() == pytest.approx(20)
        harness.clock.advance(25)
        assert await harness.ops.next_deadline() == pytest.approx(-5)
