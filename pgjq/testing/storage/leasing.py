"""Storage contract: heartbeats, checkpoints and the two deadlines."""

from __future__ import annotations

from pgjq.outcome import Completed, Failing, Released
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness


class Leasing(Cases):
    """Heartbeats, checkpoints and the two deadlines."""

    @case
    async def test_a_heartbeat_moves_the_deadline_ahead(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one(lease=30, heartbeat=10)
        for _ in range(5):
            harness.clock.advance(29)
            pulse = await harness.ops.heartbeat([job.lease])
            assert (pulse.lost, pulse.cancel_requested, list(pulse.skipped)) == ([], [], [])
            assert await harness.ops.reap() == []
        harness.clock.advance(30)
        assert [r.id for r in await harness.ops.reap()] == ["a"]

    @case
    async def test_a_heartbeat_learns_what_is_lost(self, harness: Harness) -> None:
        await harness.enqueue_all("a", "b", "c")
        jobs = await harness.claim()
        await harness.settle(jobs[0], Completed(b"1"))
        await harness.settle(jobs[1], Released())
        pulse = await harness.ops.heartbeat([job.lease for job in jobs])
        assert pulse.lost == [jobs[0].lease, jobs[1].lease]

    @case
    async def test_a_heartbeat_cannot_outlive_the_attempts_expiry(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one(lease=30, expire=50)
        harness.clock.advance(29)
        await harness.ops.heartbeat([job.lease])
        harness.clock.advance(21)
        (stalled,) = await harness.ops.reap()
        assert (stalled.reason, stalled.action) == ("expired", "recovered")

    @case
    async def test_a_heartbeat_returns_a_cancel_request(self, harness: Harness) -> None:
        await harness.enqueue_all("a", "b")
        jobs = await harness.claim()
        await harness.ops.cancel(QUEUE, "a", active=True)
        pulse = await harness.ops.heartbeat([job.lease for job in jobs])
        assert (pulse.lost, pulse.cancel_requested) == ([], [jobs[0].lease])

    @case
    async def test_without_a_lease_only_the_expiry_counts(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one(lease=None, heartbeat=None, expire=100)
        harness.clock.advance(99)
        assert await harness.ops.reap() == []
        assert (await harness.ops.heartbeat([job.lease])).lost == []
        harness.clock.advance(1)
        assert [r.reason for r in await harness.ops.reap()] == ["expired"]

    @case
    async def test_without_any_deadline_a_job_is_never_reaped(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.claim_one(lease=None, heartbeat=None, expire=None)
        harness.clock.advance(10_000_000)
        assert await harness.ops.reap() == []
        assert await harness.ops.next_deadline() is None

    @case
    async def test_a_checkpoint_survives_retries_and_reaping(self, harness: Harness) -> None:
        await harness.enqueue("a", max_attempts=5)
        job = await harness.claim_one()
        assert job.checkpoint is None
        assert await harness.ops.save_checkpoint(job.lease, b"page 7")
        await harness.settle(job, Failing(BOOM))
        job = await harness.claim_one(lease=10, heartbeat=3)
        assert job.checkpoint == b"page 7"
        assert await harness.ops.save_checkpoint(job.lease, b"page 9")
        harness.clock.advance(10)
        await harness.ops.reap()
        assert (await harness.claim_one()).checkpoint == b"page 9"

    @case
    async def test_a_checkpoint_under_an_old_lease_is_refused(self, harness: Harness) -> None:
        await harness.enqueue("a")
        old = await harness.claim_one()
        await harness.settle(old, Released())
        assert not await harness.ops.save_checkpoint(old.lease, b"late")
        current = await harness.claim_one()
        assert not await harness.ops.save_checkpoint(old.lease, b"late")
        await harness.settle(current, Released())
        assert (await harness.claim_one()).checkpoint is None
