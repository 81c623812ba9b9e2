"""Storage contract, policies: how many jobs of a key each accepts, and which may run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pgjq.errors import PolicyError
from pgjq.outcome import Completed, Failed, Failing, Released
from pgjq.storage.base import Settlement
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness
from pgjq.testing.storage.policy_cases import PolicyCases

if TYPE_CHECKING:
    from pgjq.policy import PolicyName
    from pgjq.storage.base import Claimed

CLAIMERS = 8


@requires("definitions")
class Policies(PolicyCases):
    """The limits of `standard`, `short`, `singleton`, `stately` and `exclusive`."""

    # standard

    @case
    async def test_standard_has_no_limit(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "standard", partition)
        for job_id in ("a", "b", "c"):
            assert (await harness.enqueue(job_id, singleton_key="k")).status == "queued"
        assert await self.ids(harness) == ["a", "b", "c"]

    # short

    @case
    async def test_short_lets_one_job_of_a_key_be_queued(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "short", partition)
        assert (await harness.enqueue("a")).status == "queued"
        refused = await harness.enqueue("b")
        assert (refused.status, refused.id, refused.existing_state) == ("duplicate", "b", "queued")
        assert (await harness.enqueue("c", singleton_key="k")).status == "queued"
        assert (await harness.enqueue("d", singleton_key="k")).status == "duplicate"
        assert await harness.ops.get(QUEUE, ["b", "d"]) == {}

    @case
    async def test_short_lets_any_number_run(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "short", partition)
        for job_id in ("a", "b", "c"):
            assert (await harness.enqueue(job_id)).status == "queued"
            assert await self.ids(harness) == [job_id]
        assert (await harness.ops.stats(QUEUE)).processing == 3

    @case
    async def test_short_counts_a_deferred_job_and_not_a_failing_one(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "short", partition)
        await harness.enqueue("a")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=60))
        assert (await harness.enqueue("b", delay=60)).status == "queued"
        assert (await harness.enqueue("c")).status == "duplicate"

    @case
    async def test_a_job_given_back_to_a_short_queue_that_has_another_waits_as_failing(
        self,
        harness: Harness,
        partition: bool,
    ) -> None:
        await self.define(harness, "short", partition)
        await harness.enqueue("a")
        job = await harness.claim_one()
        await harness.enqueue("b")
        assert await harness.settle(job, Released()) == "failing"
        assert (await harness.status("a")).attempts == 0
        assert sorted(await self.ids(harness)) == ["a", "b"]

    @case
    async def test_of_jobs_given_back_together_to_a_short_queue_one_is_queued(
        self,
        harness: Harness,
        partition: bool,
    ) -> None:
        await self.define(harness, "short", partition)
        jobs: list[Claimed] = []
        for job_id in ("a", "b"):
            await harness.enqueue(job_id)
            jobs.append(await harness.claim_one())
        settled = await harness.ops.settle([Settlement(job.lease, Released()) for job in jobs])
        assert [s.state for s in settled] == ["queued", "failing"]
        assert sorted(await self.ids(harness)) == ["a", "b"]

    # singleton

    @case
    async def test_singleton_lets_one_job_of_a_key_run(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "singleton", partition)
        await self.fill(harness, ("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"))
        first = await harness.claim()
        assert [job.lease.id for job in first] == ["a1", "b1"]
        assert await self.ids(harness) == []
        await harness.settle(first[0], Completed(b"1"))
        assert await self.ids(harness) == ["a2"]

    @case
    async def test_singleton_without_keys_lets_one_job_run(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "singleton", partition)
        for job_id in ("a", "b"):
            await harness.enqueue(job_id)
        job = await harness.claim_one()
        await harness.enqueue("c", singleton_key="k")
        assert await self.ids(harness) == ["c"]
        await harness.settle(job, Failed(BOOM))
        assert await self.ids(harness) == ["b"]

    @case
    async def test_singleton_lets_others_run_while_one_waits_for_its_retry(
        self,
        harness: Harness,
        partition: bool,
    ) -> None:
        await self.define(harness, "singleton", partition)
        await harness.enqueue("a")
        await harness.enqueue("b")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=60))
        job = await harness.claim_one()
        assert job.lease.id == "b"
        harness.clock.advance(60)
        assert await self.ids(harness) == []
        await harness.settle(job, Completed(b"1"))
        assert await self.ids(harness) == ["a"]

    @case
    async def test_singleton_goes_by_priority(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "singleton", partition)
        await harness.enqueue("running")
        job = await harness.claim_one()
        for job_id, priority in (("low", 0), ("high", 5)):
            await harness.enqueue(job_id, priority=priority)
            assert await self.ids(harness) == []
        await harness.settle(job, Completed(b"1"))
        assert await self.ids(harness) == ["high"]

    # stately

    @case
    async def test_stately_lets_one_job_of_a_key_be_in_each_state(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "stately", partition)
        await harness.enqueue("failing")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=60))
        assert (await harness.enqueue("processing")).status == "queued"
        await harness.claim_one()
        assert (await harness.enqueue("queued")).status == "queued"
        refused = await harness.enqueue("one too many")
        assert (refused.status, refused.existing_state) == ("duplicate", "queued")
        assert await self.ids(harness) == []
        stats = await harness.ops.stats(QUEUE)
        assert (stats.queued, stats.processing, stats.failing) == (1, 1, 1)
        assert (await harness.enqueue("another key", singleton_key="k")).status == "queued"

    @case
    async def test_in_a_stately_queue_a_second_failing_job_has_failed(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "stately", partition)
        await harness.enqueue("first")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=60))
        await harness.enqueue("second")
        assert await harness.settle(await harness.claim_one(), Failing(BOOM, delay=60)) == "failed"
        assert (await harness.status("second")).error == BOOM
        assert (await harness.status("first")).state == "failing"

    @case
    async def test_in_a_stately_queue_a_second_job_that_expires_has_failed(
        self, harness: Harness, partition: bool
    ) -> None:
        await self.define(harness, "stately", partition)
        await harness.enqueue("first", retry_delay=1000)
        await harness.claim_one(expire=5)
        harness.clock.advance(5)
        assert [r.action for r in await harness.ops.reap()] == ["recovered"]
        await harness.enqueue("second")
        await harness.claim_one(expire=5)
        harness.clock.advance(5)
        assert [r.action for r in await harness.ops.reap()] == ["failed"]
        assert await harness.state("second") == "failed"

    @case
    async def test_a_stately_job_that_is_released_finds_the_place_that_is_free(
        self,
        harness: Harness,
        partition: bool,
    ) -> None:
        await self.define(harness, "stately", partition)
        await harness.enqueue("a")
        assert await harness.settle(await harness.claim_one(), Released()) == "queued"
        job = await harness.claim_one()
        await harness.enqueue("b")
        assert await harness.settle(job, Released()) == "failing"
        job, *_ = await harness.claim()
        assert job.lease.id == "a"

    # exclusive

    @case
    async def test_exclusive_lets_one_job_of_a_key_live(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "exclusive", partition)
        assert (await harness.enqueue("a")).status == "queued"
        assert (await harness.enqueue("b")).existing_state == "queued"
        job = await harness.claim_one()
        assert (await harness.enqueue("b")).existing_state == "processing"
        await harness.settle(job, Failing(BOOM))
        assert (await harness.enqueue("b")).existing_state == "failing"
        assert (await harness.enqueue("c", singleton_key="k")).status == "queued"
        await harness.settle((await harness.claim())[0], Completed(b"1"))
        assert (await harness.enqueue("b")).status == "queued"

    @case
    async def test_a_taken_id_comes_before_a_taken_place(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "exclusive", partition)
        await harness.complete("a", b"7")
        await harness.enqueue("b")
        answer = await harness.enqueue("a")
        assert (answer.status, answer.result) == ("completed", b"7")
        assert await harness.state("a") == "completed"

    @case
    async def test_a_place_that_is_taken_leaves_an_ended_job_as_it_is(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "exclusive", partition)
        await harness.fail("a")
        await harness.enqueue("b")
        assert (await harness.enqueue("a")).status == "duplicate"
        assert await harness.state("a") == "failed"

    @case
    @pytest.mark.parametrize("policy", ["short", "stately", "exclusive"])
    async def test_a_retry_into_a_taken_place_is_refused(
        self, harness: Harness, partition: bool, policy: PolicyName
    ) -> None:
        await self.define(harness, policy, partition)
        await harness.fail("a")
        await harness.enqueue("b")
        with pytest.raises(PolicyError, match="'a'"):
            await harness.ops.retry(QUEUE, "a")
        assert await harness.state("a") == "failed"
        await harness.ops.cancel(QUEUE, "b")
        status = await harness.ops.retry(QUEUE, "a")
        assert status is not None
        assert status.state == "queued"

    @case
    @pytest.mark.parametrize("policy", ["short", "stately", "exclusive"])
    async def test_of_eight_that_enqueue_one_key_at_once_one_gets_in(
        self,
        harness: Harness,
        partition: bool,
        policy: PolicyName,
    ) -> None:
        await self.define(harness, policy, partition)
        for round_ in range(3):

            async def enqueue(n: int, round_: int = round_) -> str:
                return (await harness.enqueue(f"{round_}-{n}", singleton_key=f"{round_}")).status

            answers = await harness.together(CLAIMERS, enqueue)
            assert Counter(answers) == {"queued": 1, "duplicate": CLAIMERS - 1}
