"""Storage contract, policy `key_strict_fifo`: one job of a key after the other, in order."""

from __future__ import annotations

import pytest

from pgjq.errors import PolicyError
from pgjq.job import NewJob
from pgjq.job_settings import settings
from pgjq.options import Submission
from pgjq.outcome import Completed, Failed, Failing
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness
from pgjq.testing.storage.policy_cases import PolicyCases, definitions


@requires("definitions")
class StrictOrder(PolicyCases):
    """The order of a key, and what blocks it."""

    @case
    async def test_strict_order_needs_a_key(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "key_strict_fifo", partition)
        with pytest.raises(PolicyError, match="singleton_key"):
            await harness.enqueue("a")
        usual, keyed = settings(NewJob(None, None)), settings(NewJob(None, None, singleton_key="k"))
        with pytest.raises(PolicyError, match="'c'"):
            await harness.ops.enqueue(QUEUE, [Submission("b", b"1", keyed), Submission("c", b"1", usual)])
        assert (await harness.ops.stats(QUEUE)).total == 0

    @case
    async def test_strict_order_is_that_of_creation_whatever_the_priority(
        self, harness: Harness, partition: bool
    ) -> None:
        await self.define(harness, "key_strict_fifo", partition)
        await self.fill(harness, ("3", "k"), ("1", "k"))
        await harness.enqueue("2", singleton_key="k", priority=9)
        await harness.enqueue("other", singleton_key="l", priority=-9)
        ran: list[str] = []
        for _ in range(3):
            jobs = await harness.claim()
            ran += [job.lease.id for job in jobs]
            for job in jobs:
                await harness.settle(job, Completed(b"1"))
        assert ran == ["3", "other", "1", "2"]

    @case
    async def test_in_strict_order_a_job_that_waits_for_its_time_holds_up_those_behind_it(
        self,
        harness: Harness,
        partition: bool,
    ) -> None:
        await self.define(harness, "key_strict_fifo", partition)
        await harness.enqueue("first", singleton_key="k", delay=60)
        await harness.enqueue("second", singleton_key="k")
        assert await self.ids(harness) == []
        harness.clock.advance(60)
        assert await self.ids(harness) == ["first"]

    @case
    async def test_in_strict_order_a_failing_job_goes_before_an_older_one_that_came_back(
        self,
        harness: Harness,
        partition: bool,
    ) -> None:
        await self.define(harness, "key_strict_fifo", partition)
        await self.fill(harness, ("older", "k"), ("failing", "k"), ("last", "k"))
        await harness.ops.cancel(QUEUE, "older")
        job = (await harness.claim())[0]
        assert job.lease.id == "failing"
        await harness.settle(job, Failing(BOOM))
        await harness.ops.retry(QUEUE, "older")
        for job_id in ("failing", "older", "last"):
            job = await harness.claim_one()
            assert job.lease.id == job_id
            await harness.settle(job, Completed(b"1"))

    @case
    async def test_in_strict_order_a_failing_job_blocks_its_key_until_it_is_done(
        self,
        harness: Harness,
        partition: bool,
    ) -> None:
        await self.define(harness, "key_strict_fifo", partition)
        await self.fill(harness, ("a1", "a"), ("a2", "a"), ("b1", "b"))
        jobs = await harness.claim()
        assert [job.lease.id for job in jobs] == ["a1", "b1"]
        await harness.settle(jobs[0], Failing(BOOM, delay=60))
        assert await self.ids(harness) == []
        harness.clock.advance(60)
        again = await harness.claim_one()
        assert again.lease.id == "a1"
        await harness.settle(again, Completed(b"1"))
        assert await self.ids(harness) == ["a2"]

    @case
    @pytest.mark.parametrize("way_out", ["delete", "retry"])
    async def test_in_strict_order_a_failed_job_blocks_its_key_until_it_is_deleted_or_retried(
        self,
        harness: Harness,
        partition: bool,
        way_out: str,
    ) -> None:
        await self.define(harness, "standard", partition=False, name="letters")
        await self.define(harness, "key_strict_fifo", partition, dead_letter="letters", delete_after_seconds=10)
        await self.fill(harness, ("a1", "a"), ("a2", "a"), ("b1", "b"))
        jobs = await harness.claim()
        await harness.settle(jobs[0], Failed(BOOM))
        assert await definitions(harness).blocked_keys(QUEUE) == ["a"]
        assert (await harness.ops.stats("letters")).queued == 1
        harness.clock.advance(13 * 86400)
        await harness.ops.prune()
        assert await self.ids(harness) == []
        assert (await harness.enqueue("a1", singleton_key="a")).existing_state == "failed"
        if way_out == "delete":
            assert await harness.ops.delete(QUEUE, ["a1"]) == 1
            assert await self.ids(harness) == ["a2"]
        else:
            await harness.ops.retry(QUEUE, "a1")
            assert await self.ids(harness) == ["a1"]
        assert await definitions(harness).blocked_keys(QUEUE) == []

    @case
    async def test_age_does_not_unblock_a_key_whose_job_is_failing(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "key_strict_fifo", partition, retention_seconds=10)
        await self.fill(harness, ("a1", "a"))
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=5))
        harness.clock.advance(1000)
        assert await harness.ops.prune() == 0
        assert await self.ids(harness) == ["a1"]

    @case
    async def test_age_does_not_unblock_a_key_whose_job_stalled_too_often(
        self, harness: Harness, partition: bool
    ) -> None:
        await self.define(harness, "key_strict_fifo", partition, delete_after_seconds=10)
        await harness.enqueue("a", singleton_key="k", max_attempts=1, result_ttl=10)
        await harness.claim_one(lease=30)
        harness.clock.advance(30)
        assert [r.action for r in await harness.ops.reap()] == ["failed"]
        harness.clock.advance(1000)
        assert await harness.ops.prune() == 0
        assert await definitions(harness).blocked_keys(QUEUE) == ["k"]

    @case
    async def test_blocked_keys_are_for_queues_in_strict_order(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "singleton", partition)
        with pytest.raises(PolicyError, match="key_strict_fifo"):
            await definitions(harness).blocked_keys(QUEUE)
