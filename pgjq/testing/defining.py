"""Storage contract, definitions: create, update, pause and delete queues; statistics and warnings."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.definition import Definition
from pgjq.errors import PolicyError, QueueNotFoundError
from pgjq.outcome import Completed, Failing
from pgjq.testing.applicable import requires
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import case
from pgjq.testing.definition_cases import DAY, DefinitionCases
from pgjq.testing.policy_cases import definitions
from pgjq.testing.waiting import PATIENCE, result_waiter


@requires("definitions")
class Defining(DefinitionCases):
    """Queues with a definition."""

    @case
    async def test_the_defaults_are_in_force_where_nothing_is_set(self, bench: Bench) -> None:
        await self.create(bench)
        info = await self.info(bench)
        assert (info.policy, info.partition, info.dead_letter, info.paused) == ("standard", False, None, False)
        assert (info.retry_limit, info.retry_delay, info.retry_backoff, info.retry_delay_max) == (2, 0, False, None)
        assert (info.heartbeat_seconds, info.expire_in_seconds) == (None, 900)
        assert (info.retention_seconds, info.delete_after_seconds) == (14 * DAY, 7 * DAY)
        assert (info.warning_queue_size, info.stats) == (None, None)

    @case
    async def test_a_queue_that_was_only_used_exists_with_the_defaults(self, bench: Bench) -> None:
        await bench.enqueue("a")
        used = await self.info(bench)
        await self.create(bench, "other")
        created = await self.info(bench, "other")
        assert used.policy == created.policy == "standard"
        assert used.retry_limit == created.retry_limit
        assert [info.name for info in await definitions(bench).queues()] == [QUEUE, "other"]

    @case
    async def test_creating_a_queue_again_leaves_it_as_it_is(self, bench: Bench) -> None:
        await self.create(bench, retry_limit=7)
        await self.create(bench, retry_limit=9)
        assert (await self.info(bench)).retry_limit == 7

    @case
    @pytest.mark.parametrize("other", [{"policy": "short"}, {"partition": True}])
    async def test_policy_and_partition_cannot_be_changed(self, bench: Bench, other: dict[str, Any]) -> None:
        await self.create(bench)
        with pytest.raises(PolicyError, match="cannot be changed"):
            await self.create(bench, **other)
        assert (await self.info(bench)).policy == "standard"

    @case
    async def test_a_queue_with_jobs_keeps_the_policy_they_were_enqueued_under(self, bench: Bench) -> None:
        await bench.enqueue("a")
        with pytest.raises(PolicyError):
            await self.create(bench, policy="exclusive")
        await bench.ops.delete(QUEUE, ["a"])
        await self.create(bench, "other", dead_letter=QUEUE)
        with pytest.raises(PolicyError):
            await self.create(bench, policy="exclusive")
        await definitions(bench).delete_queue("other")
        await self.create(bench, policy="exclusive")
        await bench.enqueue("a")
        assert (await bench.enqueue("b")).status == "duplicate"

    @case
    async def test_a_used_queue_that_is_empty_again_gets_a_policy_and_stays_paused(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await definitions(bench).pause(QUEUE, paused=True)
        used = await self.info(bench)
        await bench.ops.delete(QUEUE, ["a"])
        bench.clock.advance(10)
        await self.create(bench, policy="singleton")
        created = await self.info(bench)
        assert (created.policy, created.paused, created.created_at) == ("singleton", True, used.created_at)

    @case
    async def test_eight_that_create_one_queue_agree(self, bench: Bench) -> None:
        async def create(n: int) -> int:
            await self.create(bench, partition=True, policy="singleton", retry_limit=n)
            return (await self.info(bench)).retry_limit

        assert len(set(await bench.together(8, create))) == 1

    @case
    async def test_a_dead_letter_queue_must_be_there_and_stay(self, bench: Bench) -> None:
        with pytest.raises(QueueNotFoundError):
            await self.create(bench, dead_letter="letters")
        assert await definitions(bench).queues() == []
        await self.create(bench, "letters")
        await self.create(bench, dead_letter="letters")
        with pytest.raises(PolicyError, match=QUEUE):
            await definitions(bench).delete_queue("letters")
        with pytest.raises(QueueNotFoundError):
            await definitions(bench).update_queue(QUEUE, {"dead_letter": "missing"})
        with pytest.raises(QueueNotFoundError):
            await bench.enqueue("a", dead_letter="missing")
        with pytest.raises(QueueNotFoundError):
            await bench.enqueue("a", queue="new", dead_letter="missing")
        assert [info.name for info in await definitions(bench).queues()] == ["letters", QUEUE]
        await definitions(bench).update_queue(QUEUE, {"dead_letter": None})
        await definitions(bench).delete_queue("letters")

    @case
    async def test_an_update_is_for_jobs_to_come(self, bench: Bench) -> None:
        await self.create(bench, retry_limit=1, expire_in_seconds=60)
        await bench.enqueue("old")
        await definitions(bench).update_queue(QUEUE, {"retry_limit": 4, "expire_in_seconds": None})
        await bench.enqueue("new")
        old, new = await bench.claim()
        assert (old.max_attempts, old.expire_seconds) == (2, 60)
        assert (new.max_attempts, new.expire_seconds) == (5, 900)
        assert (await self.info(bench)).retry_limit == 4

    @case
    async def test_unknown_queues_are_not_changed(self, bench: Bench) -> None:
        for refused in (
            definitions(bench).update_queue(QUEUE, {}),
            definitions(bench).delete_queue(QUEUE),
            definitions(bench).pause(QUEUE, paused=True),
            definitions(bench).blocked_keys(QUEUE),
            definitions(bench).redrive(QUEUE, limit=1),
        ):
            with pytest.raises(QueueNotFoundError, match=QUEUE):
                await refused
        assert await definitions(bench).queues() == []

    @case
    @pytest.mark.parametrize("partition", [False, True])
    async def test_a_deleted_queue_takes_its_jobs_along(self, bench: Bench, partition: bool) -> None:
        await self.create(bench, partition=partition)
        await bench.complete("done")
        await bench.enqueue("running")
        job = await bench.claim_one()
        await bench.enqueue("waiting")
        await bench.enqueue("other", queue="other")
        await definitions(bench).delete_queue(QUEUE)
        assert await bench.ops.get(QUEUE, ["done", "running", "waiting"]) == {}
        assert await bench.settle(job, Completed(b"1")) is None
        assert [info.name for info in await definitions(bench).queues()] == ["other"]
        assert (await bench.enqueue("waiting")).status == "queued"
        assert len(await bench.claim()) == 1

    @case
    async def test_a_paused_queue_is_passed_over(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await definitions(bench).pause(QUEUE, paused=True)
        assert (await self.info(bench)).paused
        assert (await bench.enqueue("b")).status == "queued"
        assert await bench.claim() == []
        assert not await bench.ops.wait_for_work([QUEUE], 0.05)
        await definitions(bench).pause(QUEUE, paused=False)
        assert await bench.ops.wait_for_work([QUEUE], 30)
        assert len(await bench.claim()) == 2

    # inherited options

    @case
    @pytest.mark.parametrize("partition", [False, True])
    async def test_waiters_learn_that_their_queue_was_deleted(self, bench: Bench, partition: bool) -> None:
        await self.create(bench, partition=partition)
        await bench.enqueue("running")
        running, waiting = await result_waiter(bench, "running"), await result_waiter(bench, "waiting")
        await bench.claim(limit=1)
        await definitions(bench).delete_queue(QUEUE)
        for waiter, _ in (running, waiting):
            assert await waiter.answer(PATIENCE) is None
            await waiter.close()

    @case
    async def test_statistics_are_kept_as_they_were_counted_last(self, bench: Bench) -> None:
        await bench.complete("done")
        await bench.enqueue("waiting")
        await definitions(bench).observe()
        await bench.enqueue("later")
        kept = (await self.info(bench)).stats
        assert kept is not None
        assert (kept.name, kept.queued, kept.completed, kept.total) == (QUEUE, 1, 1, 2)
        assert (await bench.ops.stats(QUEUE)).queued == 2

    @case
    async def test_a_queue_that_grows_too_long_is_told_of_once(self, bench: Bench) -> None:
        await self.create(bench, warning_queue_size=2)
        subscription = await bench.ops.subscribe(QUEUE)
        await bench.enqueue("failing")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=1000))
        await bench.enqueue("a")
        assert await definitions(bench).observe() == []
        await bench.enqueue("b")
        (crossing,) = await definitions(bench).observe()
        assert (crossing.queue, crossing.count, crossing.size) == (QUEUE, 3, 2)
        assert await definitions(bench).observe() == []
        await bench.ops.cancel(QUEUE, "b")
        assert await definitions(bench).observe() == []
        await bench.enqueue("c")
        assert len(await definitions(bench).observe(with_endings=False)) == 1
        events: list[Any] = []
        while sum(event.name == "warning" for event in events) < 2:
            events += await subscription.next(30)
        assert [(e.queue, e.count) for e in events if e.name == "warning"] == [(QUEUE, 3), (QUEUE, 3)]
        await subscription.close()

    @case
    async def test_a_definition_may_be_empty(self, bench: Bench) -> None:
        await definitions(bench).create_queue(QUEUE, Definition())
        await definitions(bench).update_queue(QUEUE, {})
        assert (await self.info(bench)).retry_limit == 2
