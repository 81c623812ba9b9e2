"""Storage contract: events, wake-ups, leaders, and closing."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.errors import StorageError, UnsupportedError
from pgjq.outcome import Completed, Failing, Released, Snoozed
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness


class Subscribing(Cases):
    """Events, wake-ups, leaders, and closing."""

    @case
    async def test_a_subscriber_hears_a_jobs_life(self, harness: Harness) -> None:
        subscription = await harness.ops.subscribe(QUEUE)
        await harness.enqueue("a", max_attempts=5)
        await harness.settle(await harness.claim_one(), Failing(BOOM))
        await harness.settle(await harness.claim_one(), Released())
        await harness.claim_one(lease=10, heartbeat=3)
        harness.clock.advance(10)
        await harness.ops.reap()
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        await harness.enqueue("b")
        await harness.ops.cancel(QUEUE, "b")
        events = await self._take_events(subscription, 13)
        assert [(e.name, e.id) for e in events] == [
            ("queued", "a"),
            ("processing", "a"),
            ("failing", "a"),
            ("processing", "a"),
            ("failing", "a"),
            ("processing", "a"),
            ("stalled", "a"),
            ("failing", "a"),
            ("processing", "a"),
            ("completed", "a"),
            ("queued", "b"),
            ("cancelled", "b"),
        ]
        stalled = events[6]
        assert (stalled.count, stalled.action, stalled.reason) == (1, "recovered", "lease")
        await subscription.close()

    async def _take_events(self, subscription: Any, at_most: int) -> list[Any]:
        """Take events until the event of the last operation."""
        events: list[Any] = []
        while len(events) < at_most and not (events and events[-1].name == "cancelled"):
            more = await subscription.next(10)
            assert more, f"heard only {[e.name for e in events]}"
            events += more
        return events

    @case
    async def test_a_subscriber_hears_its_queue_or_all(self, harness: Harness) -> None:
        one = await harness.ops.subscribe("one")
        everything = await harness.ops.subscribe()
        await harness.enqueue("a", queue="two")
        await harness.enqueue("b", queue="one")
        await harness.ops.cancel("one", "b")
        assert [(e.queue, e.id) for e in await self._take_events(one, 2)] == [("one", "b")] * 2
        assert [e.queue for e in await self._take_events(everything, 3)] == ["two", "one", "one"]
        await one.close()
        await everything.close()

    @case
    async def test_a_big_batch_is_heard_whole(self, harness: Harness) -> None:
        subscription = await harness.ops.subscribe(QUEUE)
        ids = [f"{n:04}-{'é' * 100}" for n in range(500)]
        await harness.enqueue_all(*ids)
        events: list[Any] = []
        while len(events) < len(ids):
            events += await subscription.next(10)
        assert sorted(e.id for e in events) == ids
        await subscription.close()

    @case
    async def test_silence_is_an_empty_list(self, harness: Harness) -> None:
        subscription = await harness.ops.subscribe(QUEUE)
        assert await subscription.next(0.01) == []
        await subscription.close()

    @case
    async def test_a_closed_subscription_hears_no_more(self, harness: Harness) -> None:
        subscription = await harness.ops.subscribe(QUEUE)
        await subscription.close()
        await subscription.close()
        await harness.enqueue("a")
        with pytest.raises(StorageError):
            await subscription.next(10)

    @case
    async def test_sleep_ends_at_once_when_there_is_work(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert await harness.ops.wait_for_work([QUEUE], 60)
        assert await harness.ops.wait_for_work([QUEUE], 0)

    @case
    async def test_sleep_ends_when_nothing_comes(self, harness: Harness) -> None:
        await harness.enqueue("a", queue="another")
        assert not await harness.ops.wait_for_work([QUEUE], 0.01)

    @case
    async def test_sleepers_are_woken_by_an_enqueue(self, harness: Harness) -> None:
        async def sleep_or_enqueue(n: int) -> bool:
            if n:
                return await harness.ops.wait_for_work(["quiet", QUEUE], 60)
            await harness.enqueue("a")
            return True

        assert await harness.together(4, sleep_or_enqueue) == [True] * 4

    @case
    async def test_sleepers_are_woken_by_a_retry(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()

        async def sleep_or_settle(n: int) -> bool:
            if n:
                return await harness.ops.wait_for_work([QUEUE], 60)
            return await harness.settle(job, Failing(BOOM)) == "failing"

        assert await harness.together(3, sleep_or_settle) == [True] * 3

    @case
    async def test_sleepers_are_woken_by_a_moved_clock(self, harness: Harness) -> None:
        await harness.enqueue("a", delay=3600)
        await harness.enqueue("b", delay=7200, queue="quiet")

        async def sleep_or_move(n: int) -> bool:
            if n < 3:
                return await harness.ops.wait_for_work(["quiet", QUEUE], 60, 60)
            harness.clock.advance(3600)
            return True

        assert await harness.together(4, sleep_or_move) == [True] * 4

    @case
    @pytest.mark.parametrize("outcome", [Failing(BOOM, 3600.0), Snoozed(3600.0)])
    async def test_sleepers_are_woken_when_a_job_that_was_put_off_becomes_due(
        self, harness: Harness, outcome: Failing | Snoozed
    ) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()

        async def sleep_or_settle(n: int) -> bool:
            if n < 3:
                return await harness.ops.wait_for_work([QUEUE], 60, 60)
            await harness.settle(job, outcome)
            harness.clock.advance(3600)
            return True

        assert await harness.together(4, sleep_or_settle) == [True] * 4
        assert (await harness.claim_one()).lease.id == "a"

    @case
    async def test_one_candidate_leads(self, harness: Harness) -> None:
        if not harness.storage.capabilities.leader_election:
            with pytest.raises(UnsupportedError):
                await harness.ops.elect("reaper", "ann", ttl=30)
            return
        assert await harness.ops.elect("reaper", "ann", ttl=30)
        assert not await harness.ops.elect("reaper", "bob", ttl=30)
        assert await harness.ops.elect("reaper", "ann", ttl=30)
        assert await harness.ops.elect("pruner", "bob", ttl=30)
        assert await harness.ops.leads("reaper", "ann")
        assert not await harness.ops.leads("reaper", "bob")
        await harness.ops.resign("reaper", "bob")
        assert not await harness.ops.elect("reaper", "bob", ttl=30)
        await harness.ops.resign("reaper", "ann")
        assert not await harness.ops.leads("reaper", "ann")
        assert await harness.ops.elect("reaper", "bob", ttl=30)

    @requires("leader_election")
    @case
    async def test_of_ten_candidates_one_leads(self, harness: Harness) -> None:
        elected = await harness.together(10, lambda n: harness.ops.elect("reaper", str(n), ttl=30))
        assert sum(elected) == 1

    @case
    async def test_a_closed_storage_says_so(self, harness: Harness) -> None:
        await harness.enqueue("a")
        subscription = await harness.ops.subscribe()
        await harness.ops.close()
        harness.storage.close()
        harness.storage.close()
        with pytest.raises(StorageError, match="closed"):
            await harness.enqueue("b")
        with pytest.raises(StorageError, match="closed"):
            await subscription.next(10)
