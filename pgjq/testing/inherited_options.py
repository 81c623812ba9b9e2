"""Storage contract, definitions: the options that jobs inherit from their queue."""

from __future__ import annotations

from pgjq.testing.applicable import requires
from pgjq.testing.bench import QUEUE, Bench
from pgjq.testing.cases import case
from pgjq.testing.definition_cases import DAY, DefinitionCases


@requires("definitions")
class InheritedOptions(DefinitionCases):
    """Options of a job, of its queue and of the worker, in this order."""

    @case
    async def test_a_job_goes_before_its_queue_and_its_queue_before_the_worker(self, bench: Bench) -> None:
        await self.create(bench, heartbeat_seconds=20, expire_in_seconds=200, retry_limit=0)
        await bench.enqueue("own", heartbeat_seconds=10, expire_in_seconds=100, retry_limit=5)
        await bench.enqueue("inherited")
        own, inherited = await bench.claim(lease=30, heartbeat=10, expire=300)
        assert (own.lease_seconds, own.expire_seconds, own.max_attempts) == (10, 100, 6)
        assert (inherited.lease_seconds, inherited.expire_seconds, inherited.max_attempts) == (20, 200, 1)
        await bench.enqueue("usual", queue="other")
        (usual,) = await bench.claim(queue="other", lease=30, heartbeat=10, expire=300)
        assert (usual.lease_seconds, usual.expire_seconds, usual.max_attempts) == (30, 300, 3)

    @case
    async def test_a_heartbeat_and_an_expiration_are_two_deadlines(self, bench: Bench) -> None:
        await self.create(bench, heartbeat_seconds=10, expire_in_seconds=25)
        await bench.enqueue("silent")
        await bench.enqueue("alive")
        silent, alive = await bench.claim()
        bench.clock.advance(9)
        await bench.ops.heartbeat([alive.lease])
        bench.clock.advance(1)
        assert [(r.id, r.reason) for r in await bench.ops.reap()] == [("silent", "lease")]
        bench.clock.advance(5)
        await bench.ops.heartbeat([alive.lease])
        bench.clock.advance(9)
        await bench.ops.heartbeat([alive.lease])
        assert await bench.ops.reap() == []
        bench.clock.advance(1)
        assert [(r.id, r.reason) for r in await bench.ops.reap()] == [("alive", "expired")]
        del silent

    @case
    async def test_a_stalled_job_waits_as_its_queue_says(self, bench: Bench) -> None:
        await self.create(bench, retry_delay=60)
        await bench.enqueue("a")
        await bench.claim_one(lease=30)
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["recovered"]
        bench.clock.advance(59)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert len(await bench.claim()) == 1

    @case
    async def test_retention_is_inherited(self, bench: Bench) -> None:
        await self.create(bench, retention_seconds=100, delete_after_seconds=5000)
        await bench.complete("done")
        await bench.enqueue("waiting")
        await bench.enqueue("own", retention_seconds=5000)
        bench.clock.advance(99)
        assert await bench.ops.prune() == 0
        bench.clock.advance(1)
        assert await bench.ops.prune() == 1
        assert set(await bench.ops.get(QUEUE, ["done", "waiting", "own"])) == {"done", "own"}
        bench.clock.advance(4900)
        assert await bench.ops.prune() == 2

    @case
    async def test_a_record_that_is_to_stay_for_ever_does(self, bench: Bench) -> None:
        await self.create(bench, delete_after_seconds=0)
        await bench.complete("completed")
        await bench.fail("failed")
        await bench.enqueue("cancelled")
        await bench.ops.cancel(QUEUE, "cancelled")
        await bench.enqueue("stalled", max_attempts=1)
        await bench.claim_one(lease=30)
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["failed"]
        bench.clock.advance(1000 * DAY)
        assert await bench.ops.prune() == 0
