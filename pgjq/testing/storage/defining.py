"""Storage contract, definitions: queues, statistics and warnings."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.definition import Definition
from pgjq.errors import PolicyError, QueueNotFoundError
from pgjq.outcome import Completed, Failing
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import case
from pgjq.testing.storage.definition_cases import DAY, DefinitionCases
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness
from pgjq.testing.storage.policy_cases import definitions
from pgjq.testing.storage.waiting import PATIENCE, result_waiter


@requires("definitions")
class Defining(DefinitionCases):
    """Queues with a definition."""

    @case
    async def test_the_defaults_are_in_force_where_nothing_is_set(self, harness: Harness) -> None:
        await self.create(harness)
        info = await self.info(harness)
        assert (info.policy, info.partition, info.dead_letter, info.paused) == ("standard", False, None, False)
        assert (info.retry_limit, info.retry_delay, info.retry_backoff, info.retry_delay_max) == (2, 0, False, None)
        assert (info.heartbeat_seconds, info.expire_in_seconds) == (None, 900)
        assert (info.retention_seconds, info.delete_after_seconds) == (14 * DAY, 7 * DAY)
        assert (info.warning_queue_size, info.stats) == (None, None)

    @case
    async def test_a_queue_that_was_only_used_exists_with_the_defaults(self, harness: Harness) -> None:
        await harness.enqueue("a")
        used = await self.info(harness)
        await self.create(harness, "other")
        created = await self.info(harness, "other")
        assert used.policy == created.policy == "standard"
        assert used.retry_limit == created.retry_limit
        assert [info.name for info in await definitions(harness).queues()] == [QUEUE, "other"]

    @case
    async def test_creating_a_queue_again_leaves_it_as_it_is(self, harness: Harness) -> None:
        await self.create(harness, retry_limit=7)
        await self.create(harness, retry_limit=9)
        assert (await self.info(harness)).retry_limit == 7

    @case
    @pytest.mark.parametrize("other", [{"policy": "short"}, {"partition": True}])
    async def test_policy_and_partition_cannot_be_changed(self, harness: Harness, other: dict[str, Any]) -> None:
        await self.create(harness)
        with pytest.raises(PolicyError, match="cannot be changed"):
            await self.create(harness, **other)
        assert (await self.info(harness)).policy == "standard"

    @case
    async def test_a_queue_with_jobs_keeps_the_policy_they_were_enqueued_under(self, harness: Harness) -> None:
        await harness.enqueue("a")
        with pytest.raises(PolicyError):
            await self.create(harness, policy="exclusive")
        await harness.ops.delete(QUEUE, ["a"])
        await self.create(harness, "other", dead_letter=QUEUE)
        with pytest.raises(PolicyError):
            await self.create(harness, policy="exclusive")
        await definitions(harness).delete_queue("other")
        await self.create(harness, policy="exclusive")
        await harness.enqueue("a")
        assert (await harness.enqueue("b")).status == "duplicate"

    @case
    async def test_a_used_queue_that_is_empty_again_gets_a_policy_and_stays_paused(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await definitions(harness).pause(QUEUE, paused=True)
        used = await self.info(harness)
        await harness.ops.delete(QUEUE, ["a"])
        harness.clock.advance(10)
        await self.create(harness, policy="singleton")
        created = await self.info(harness)
        assert (created.policy, created.paused, created.created_at) == ("singleton", True, used.created_at)

    @case
    async def test_eight_that_create_one_queue_agree(self, harness: Harness) -> None:
        async def create(n: int) -> int:
            await self.create(harness, partition=True, policy="singleton", retry_limit=n)
            return (await self.info(harness)).retry_limit

        assert len(set(await harness.together(8, create))) == 1

    @case
    async def test_a_dead_letter_queue_must_be_there_and_stay(self, harness: Harness) -> None:
        with pytest.raises(QueueNotFoundError):
            await self.create(harness, dead_letter="letters")
        assert await definitions(harness).queues() == []
        await self.create(harness, "letters")
        await self.create(harness, dead_letter="letters")
        with pytest.raises(PolicyError, match=QUEUE):
            await definitions(harness).delete_queue("letters")
        with pytest.raises(QueueNotFoundError):
            await definitions(harness).update_queue(QUEUE, {"dead_letter": "missing"})
        with pytest.raises(QueueNotFoundError):
            await harness.enqueue("a", dead_letter="missing")
        with pytest.raises(QueueNotFoundError):
            await harness.enqueue("a", queue="new", dead_letter="missing")
        assert [info.name for info in await definitions(harness).queues()] == ["letters", QUEUE]
        await definitions(harness).update_queue(QUEUE, {"dead_letter": None})
        await definitions(harness).delete_queue("letters")

    @case
    async def test_an_update_is_for_jobs_to_come(self, harness: Harness) -> None:
        await self.create(harness, retry_limit=1, expire_in_seconds=60)
        await harness.enqueue("old")
        await definitions(harness).update_queue(QUEUE, {"retry_limit": 4, "expire_in_seconds": None})
        await harness.enqueue("new")
        old, new = await harness.claim()
        assert (old.max_attempts, old.expire_seconds) == (2, 60)
        assert (new.max_attempts, new.expire_seconds) == (5, 900)
        assert (await self.info(harness)).retry_limit == 4

    @case
    async def test_unknown_queues_are_not_changed(self, harness: Harness) -> None:
        for refused in (
            definitions(harness).update_queue(QUEUE, {}),
            definitions(harness).delete_queue(QUEUE),
            definitions(harness).pause(QUEUE, paused=True),
            definitions(harness).blocked_keys(QUEUE),
            definitions(harness).redrive(QUEUE, limit=1),
        ):
            with pytest.raises(QueueNotFoundError, match=QUEUE):
                await refused
        assert await definitions(harness).queues() == []

    @case
    @pytest.mark.parametrize("partition", [False, True])
    async def test_a_deleted_queue_takes_its_jobs_along(self, harness: Harness, partition: bool) -> None:
        await self.create(harness, partition=partition)
        await harness.complete("done")
        await harness.enqueue("running")
        job = await harness.claim_one()
        await harness.enqueue("waiting")
        await harness.enqueue("other", queue="other")
        await definitions(harness).delete_queue(QUEUE)
        assert await harness.ops.get(QUEUE, ["done", "running", "waiting"]) == {}
        assert await harness.settle(job, Completed(b"1")) is None
        assert [info.name for info in await definitions(harness).queues()] == ["other"]
        assert (await harness.enqueue("waiting")).status == "queued"
        assert len(await harness.claim()) == 1

    @case
    async def test_a_paused_queue_is_passed_over(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await definitions(harness).pause(QUEUE, paused=True)
        assert (await self.info(harness)).paused
        assert (await harness.enqueue("b")).status == "queued"
        assert await harness.claim() == []
        assert not await harness.ops.wait_for_work([QUEUE], 0.05)
        await definitions(harness).pause(QUEUE, paused=False)
        assert await harness.ops.wait_for_work([QUEUE], 30)
        assert len(await harness.claim()) == 2

    # inherited options

    @case
    @pytest.mark.parametrize("partition", [False, True])
    async def test_waiters_learn_that_their_queue_was_deleted(self, harness: Harness, partition: bool) -> None:
        await self.create(harness, partition=partition)
        await harness.enqueue("running")
        running, waiting = await result_waiter(harness, "running"), await result_waiter(harness, "waiting")
        await harness.claim(limit=1)
        await definitions(harness).delete_queue(QUEUE)
        for waiter, _ in (running, waiting):
            assert await waiter.answer(PATIENCE) is None
            await waiter.close()

    @case
    async def test_statistics_are_kept_as_they_were_counted_last(self, harness: Harness) -> None:
        await harness.complete("done")
        await harness.enqueue("waiting")
        await definitions(harness).observe()
        await harness.enqueue("later")
        kept = (await self.info(harness)).stats
        assert kept is not None
        assert (kept.name, kept.queued, kept.completed, kept.total) == (QUEUE, 1, 1, 2)
        assert (await harness.ops.stats(QUEUE)).queued == 2

    @case
    async def test_a_queue_that_grows_too_long_is_told_of_once(self, harness: Harness) -> None:
        await self.create(harness, warning_queue_size=2)
        subscription = await harness.ops.subscribe(QUEUE)
        await harness.enqueue("failing")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=1000))
        await harness.enqueue("a")
        assert await definitions(harness).observe() == []
        await harness.enqueue("b")
        (crossing,) = await definitions(harness).observe()
        assert (crossing.queue, crossing.count, crossing.size) == (QUEUE, 3, 2)
        assert await definitions(harness).observe() == []
        await harness.ops.cancel(QUEUE, "b")
        assert await definitions(harness).observe() == []
        await harness.enqueue("c")
        assert len(await definitions(harness).observe(with_endings=False)) == 1
        events: list[Any] = []
        while sum(event.name == "warning" for event in events) < 2:
            events += await subscription.next(30)
        assert [(e.queue, e.count) for e in events if e.name == "warning"] == [(QUEUE, 3), (QUEUE, 3)]
        await subscription.close()

    @case
    async def test_a_definition_may_be_empty(self, harness: Harness) -> None:
        await definitions(harness).create_queue(QUEUE, Definition())
        await definitions(harness).update_queue(QUEUE, {})
        assert (await self.info(harness)).retry_limit == 2
