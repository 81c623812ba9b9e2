"""Storage contract: heartbeats, checkpoints and the two deadlines."""

from __future__ import annotations

from pgjq.outcome import Completed, Failing, Released
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import Cases, case


class Leasing(Cases):
    """Heartbeats, checkpoints and the two deadlines."""

    @case
    async def test_a_heartbeat_moves_the_deadline_ahead(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one(lease=30, heartbeat=10)
        for _ in range(5):
            bench.clock.advance(29)
            pulse = await bench.ops.heartbeat([job.lease])
            assert (pulse.lost, pulse.cancel_requested, list(pulse.skipped)) == ([], [], [])
            assert await bench.ops.reap() == []
        bench.clock.advance(30)
        assert [r.id for r in await bench.ops.reap()] == ["a"]

    @case
    async def test_a_heartbeat_learns_what_is_lost(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b", "c")
        jobs = await bench.claim()
        await bench.settle(jobs[0], Completed(b"1"))
        await bench.settle(jobs[1], Released())
        pulse = await bench.ops.heartbeat([job.lease for job in jobs])
        assert pulse.lost == [jobs[0].lease, jobs[1].lease]

    @case
    async def test_a_heartbeat_cannot_outlive_the_attempts_expiry(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one(lease=30, expire=50)
        bench.clock.advance(29)
        await bench.ops.heartbeat([job.lease])
        bench.clock.advance(21)
        (stalled,) = await bench.ops.reap()
        assert (stalled.reason, stalled.action) == ("expired", "recovered")

    @case
    async def test_a_heartbeat_learns_of_a_wish_to_cancel(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b")
        jobs = await bench.claim()
        await bench.ops.cancel(QUEUE, "a", active=True)
        pulse = await bench.ops.heartbeat([job.lease for job in jobs])
        assert (pulse.lost, pulse.cancel_requested) == ([], [jobs[0].lease])

    @case
    async def test_without_a_lease_only_the_expiry_counts(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one(lease=None, heartbeat=None, expire=100)
        bench.clock.advance(99)
        assert await bench.ops.reap() == []
        assert (await bench.ops.heartbeat([job.lease])).lost == []
        bench.clock.advance(1)
        assert [r.reason for r in await bench.ops.reap()] == ["expired"]

    @case
    async def test_without_any_deadline_a_job_is_never_reaped(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.claim_one(lease=None, heartbeat=None, expire=None)
        bench.clock.advance(10_000_000)
        assert await bench.ops.reap() == []
        assert await bench.ops.next_deadline() is None

    @case
    async def test_a_checkpoint_survives_retries_and_reaping(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=5)
        job = await bench.claim_one()
        assert job.checkpoint is None
        assert await bench.ops.save_checkpoint(job.lease, b"page 7")
        await bench.settle(job, Failing(BOOM))
        job = await bench.claim_one(lease=10, heartbeat=3)
        assert job.checkpoint == b"page 7"
        assert await bench.ops.save_checkpoint(job.lease, b"page 9")
        bench.clock.advance(10)
        await bench.ops.reap()
        assert (await bench.claim_one()).checkpoint == b"page 9"

    @case
    async def test_a_checkpoint_under_an_old_lease_is_refused(self, bench: Bench) -> None:
        await bench.enqueue("a")
        old = await bench.claim_one()
        await bench.settle(old, Released())
        assert not await bench.ops.save_checkpoint(old.lease, b"late")
        current = await bench.claim_one()
        assert not await bench.ops.save_checkpoint(old.lease, b"late")
        await bench.settle(current, Released())
        assert (await bench.claim_one()).checkpoint is None
