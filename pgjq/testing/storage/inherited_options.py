"""Storage contract, definitions: the options that jobs inherit from their queue."""

from __future__ import annotations

from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import case
from pgjq.testing.storage.definition_cases import DAY, DefinitionCases
from pgjq.testing.storage.harness import QUEUE, Harness


@requires("definitions")
class InheritedOptions(DefinitionCases):
    """Options of a job, of its queue and of the worker, in this order."""

    @case
    async def test_a_job_goes_before_its_queue_and_its_queue_before_the_worker(self, harness: Harness) -> None:
        await self.create(harness, heartbeat_seconds=20, expire_in_seconds=200, retry_limit=0)
        await harness.enqueue("own", heartbeat_seconds=10, expire_in_seconds=100, retry_limit=5)
        await harness.enqueue("inherited")
        own, inherited = await harness.claim(lease=30, heartbeat=10, expire=300)
        assert (own.lease_seconds, own.expire_seconds, own.max_attempts) == (10, 100, 6)
        assert (inherited.lease_seconds, inherited.expire_seconds, inherited.max_attempts) == (20, 200, 1)
        await harness.enqueue("usual", queue="other")
        (usual,) = await harness.claim(queue="other", lease=30, heartbeat=10, expire=300)
        assert (usual.lease_seconds, usual.expire_seconds, usual.max_attempts) == (30, 300, 3)

    @case
    async def test_a_heartbeat_and_an_expiration_are_two_deadlines(self, harness: Harness) -> None:
        await self.create(harness, heartbeat_seconds=10, expire_in_seconds=25)
        await harness.enqueue("silent")
        await harness.enqueue("alive")
        silent, alive = await harness.claim()
        harness.clock.advance(9)
        await harness.ops.heartbeat([alive.lease])
        harness.clock.advance(1)
        assert [(r.id, r.reason) for r in await harness.ops.reap()] == [("silent", "lease")]
        harness.clock.advance(5)
        await harness.ops.heartbeat([alive.lease])
        harness.clock.advance(9)
        await harness.ops.heartbeat([alive.lease])
        assert await harness.ops.reap() == []
        harness.clock.advance(1)
        assert [(r.id, r.reason) for r in await harness.ops.reap()] == [("alive", "expired")]
        del silent

    @case
    async def test_a_stalled_job_waits_as_its_queue_says(self, harness: Harness) -> None:
        await self.create(harness, retry_delay=60)
        await harness.enqueue("a")
        await harness.claim_one(lease=30)
        harness.clock.advance(30)
        assert [r.action for r in await harness.ops.reap()] == ["recovered"]
        harness.clock.advance(59)
        assert await harness.claim() == []
        harness.clock.advance(1)
        assert len(await harness.claim()) == 1

    @case
    async def test_retention_is_inherited(self, harness: Harness) -> None:
        await self.create(harness, retention_seconds=100, delete_after_seconds=5000)
        await harness.complete("done")
        await harness.enqueue("waiting")
        await harness.enqueue("own", retention_seconds=5000)
        harness.clock.advance(99)
        assert await harness.ops.prune() == 0
        harness.clock.advance(1)
        assert await harness.ops.prune() == 1
        assert set(await harness.ops.get(QUEUE, ["done", "waiting", "own"])) == {"done", "own"}
        harness.clock.advance(4900)
        assert await harness.ops.prune() == 2

    @case
    async def test_a_record_that_is_to_stay_for_ever_does(self, harness: Harness) -> None:
        await self.create(harness, delete_after_seconds=0)
        await harness.complete("completed")
        await harness.fail("failed")
        await harness.enqueue("cancelled")
        await harness.ops.cancel(QUEUE, "cancelled")
        await harness.enqueue("stalled", max_attempts=1)
        await harness.claim_one(lease=30)
        harness.clock.advance(30)
        assert [r.action for r in await harness.ops.reap()] == ["failed"]
        harness.clock.advance(1000 * DAY)
        assert await harness.ops.prune() == 0
