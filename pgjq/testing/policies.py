"""Storage contract, policies: how many jobs of a key each policy accepts, and which it lets run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pgjq.errors import PolicyError
from pgjq.outcome import Completed, Failed, Failing, Released
from pgjq.storage.base import Settlement
from pgjq.testing.applicable import requires
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import case
from pgjq.testing.policy_cases import PolicyCases

if TYPE_CHECKING:
    from pgjq.policy import Policy
    from pgjq.storage.base import Claimed

CLAIMERS = 8


@requires("definitions")
class Policies(PolicyCases):
    """The limits of `standard`, `short`, `singleton`, `stately` and `exclusive`."""

    # standard

    @case
    async def test_standard_has_no_limit(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "standard", partition)
        for job_id in ("a", "b", "c"):
            assert (await bench.enqueue(job_id, singleton_key="k")).status == "queued"
        assert await self.ids(bench) == ["a", "b", "c"]

    # short

    @case
    async def test_short_lets_one_job_of_a_key_be_queued(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "short", partition)
        assert (await bench.enqueue("a")).status == "queued"
        refused = await bench.enqueue("b")
        assert (refused.status, refused.id, refused.existing_state) == ("duplicate", "b", "queued")
        assert (await bench.enqueue("c", singleton_key="k")).status == "queued"
        assert (await bench.enqueue("d", singleton_key="k")).status == "duplicate"
        assert await bench.ops.get(QUEUE, ["b", "d"]) == {}

    @case
    async def test_short_lets_any_number_run(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "short", partition)
        for job_id in ("a", "b", "c"):
            assert (await bench.enqueue(job_id)).status == "queued"
            assert await self.ids(bench) == [job_id]
        assert (await bench.ops.stats(QUEUE)).processing == 3

    @case
    async def test_short_counts_a_deferred_job_and_not_a_failing_one(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "short", partition)
        await bench.enqueue("a")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=60))
        assert (await bench.enqueue("b", delay=60)).status == "queued"
        assert (await bench.enqueue("c")).status == "duplicate"

    @case
    async def test_a_job_given_back_to_a_short_queue_that_has_another_waits_as_failing(
        self,
        bench: Bench,
        partition: bool,
    ) -> None:
        await self.define(bench, "short", partition)
        await bench.enqueue("a")
        job = await bench.claim_one()
        await bench.enqueue("b")
        assert await bench.settle(job, Released()) == "failing"
        assert (await bench.status("a")).attempts == 0
        assert sorted(await self.ids(bench)) == ["a", "b"]

    @case
    async def test_of_jobs_given_back_together_to_a_short_queue_one_is_queued(
        self,
        bench: Bench,
        partition: bool,
    ) -> None:
        await self.define(bench, "short", partition)
        jobs: list[Claimed] = []
        for job_id in ("a", "b"):
            await bench.enqueue(job_id)
            jobs.append(await bench.claim_one())
        settled = await bench.ops.settle([Settlement(job.lease, Released()) for job in jobs])
        assert [s.state for s in settled] == ["queued", "failing"]
        assert sorted(await self.ids(bench)) == ["a", "b"]

    # singleton

    @case
    async def test_singleton_lets_one_job_of_a_key_run(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "singleton", partition)
        await self.fill(bench, ("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"))
        first = await bench.claim()
        assert [job.lease.id for job in first] == ["a1", "b1"]
        assert await self.ids(bench) == []
        await bench.settle(first[0], Completed(b"1"))
        assert await self.ids(bench) == ["a2"]

    @case
    async def test_singleton_without_keys_lets_one_job_run(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "singleton", partition)
        for job_id in ("a", "b"):
            await bench.enqueue(job_id)
        job = await bench.claim_one()
        await bench.enqueue("c", singleton_key="k")
        assert await self.ids(bench) == ["c"]
        await bench.settle(job, Failed(BOOM))
        assert await self.ids(bench) == ["b"]

    @case
    async def test_singleton_lets_others_run_while_one_waits_for_its_retry(
        self,
        bench: Bench,
        partition: bool,
    ) -> None:
        await self.define(bench, "singleton", partition)
        await bench.enqueue("a")
        await bench.enqueue("b")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=60))
        job = await bench.claim_one()
        assert job.lease.id == "b"
        bench.clock.advance(60)
        assert await self.ids(bench) == []
        await bench.settle(job, Completed(b"1"))
        assert await self.ids(bench) == ["a"]

    @case
    async def test_singleton_goes_by_priority(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "singleton", partition)
        await bench.enqueue("running")
        job = await bench.claim_one()
        for job_id, priority in (("low", 0), ("high", 5)):
            await bench.enqueue(job_id, priority=priority)
            assert await self.ids(bench) == []
        await bench.settle(job, Completed(b"1"))
        assert await self.ids(bench) == ["high"]

    # stately

    @case
    async def test_stately_lets_one_job_of_a_key_be_in_each_state(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "stately", partition)
        await bench.enqueue("failing")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=60))
        assert (await bench.enqueue("processing")).status == "queued"
        await bench.claim_one()
        assert (await bench.enqueue("queued")).status == "queued"
        refused = await bench.enqueue("one too many")
        assert (refused.status, refused.existing_state) == ("duplicate", "queued")
        assert await self.ids(bench) == []
        stats = await bench.ops.stats(QUEUE)
        assert (stats.queued, stats.processing, stats.failing) == (1, 1, 1)
        assert (await bench.enqueue("another key", singleton_key="k")).status == "queued"

    @case
    async def test_in_a_stately_queue_a_second_failing_job_has_failed(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "stately", partition)
        await bench.enqueue("first")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=60))
        await bench.enqueue("second")
        assert await bench.settle(await bench.claim_one(), Failing(BOOM, delay=60)) == "failed"
        assert (await bench.status("second")).error == BOOM
        assert (await bench.status("first")).state == "failing"

    @case
    async def test_in_a_stately_queue_a_second_job_that_expires_has_failed(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "stately", partition)
        await bench.enqueue("first", retry_delay=1000)
        await bench.claim_one(expire=5)
        bench.clock.advance(5)
        assert [r.action for r in await bench.ops.reap()] == ["recovered"]
        await bench.enqueue("second")
        await bench.claim_one(expire=5)
        bench.clock.advance(5)
        assert [r.action for r in await bench.ops.reap()] == ["failed"]
        assert await bench.state("second") == "failed"

    @case
    async def test_a_stately_job_that_is_released_finds_the_place_that_is_free(
        self,
        bench: Bench,
        partition: bool,
    ) -> None:
        await self.define(bench, "stately", partition)
        await bench.enqueue("a")
        assert await bench.settle(await bench.claim_one(), Released()) == "queued"
        job = await bench.claim_one()
        await bench.enqueue("b")
        assert await bench.settle(job, Released()) == "failing"
        job, *_ = await bench.claim()
        assert job.lease.id == "a"

    # exclusive

    @case
    async def test_exclusive_lets_one_job_of_a_key_live(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "exclusive", partition)
        assert (await bench.enqueue("a")).status == "queued"
        assert (await bench.enqueue("b")).existing_state == "queued"
        job = await bench.claim_one()
        assert (await bench.enqueue("b")).existing_state == "processing"
        await bench.settle(job, Failing(BOOM))
        assert (await bench.enqueue("b")).existing_state == "failing"
        assert (await bench.enqueue("c", singleton_key="k")).status == "queued"
        await bench.settle((await bench.claim())[0], Completed(b"1"))
        assert (await bench.enqueue("b")).status == "queued"

    @case
    async def test_a_taken_id_comes_before_a_taken_place(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "exclusive", partition)
        await bench.complete("a", b"7")
        await bench.enqueue("b")
        answer = await bench.enqueue("a")
        assert (answer.status, answer.result) == ("completed", b"7")
        assert await bench.state("a") == "completed"

    @case
    async def test_a_place_that_is_taken_leaves_an_ended_job_as_it_is(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "exclusive", partition)
        await bench.fail("a")
        await bench.enqueue("b")
        assert (await bench.enqueue("a")).status == "duplicate"
        assert await bench.state("a") == "failed"

    @case
    @pytest.mark.parametrize("policy", ["short", "stately", "exclusive"])
    async def test_a_retry_into_a_taken_place_is_refused(self, bench: Bench, partition: bool, policy: Policy) -> None:
        await self.define(bench, policy, partition)
        await bench.fail("a")
        await bench.enqueue("b")
        with pytest.raises(PolicyError, match="'a'"):
            await bench.ops.retry(QUEUE, "a")
        assert await bench.state("a") == "failed"
        await bench.ops.cancel(QUEUE, "b")
        status = await bench.ops.retry(QUEUE, "a")
        assert status is not None
        assert status.state == "queued"

    @case
    @pytest.mark.parametrize("policy", ["short", "stately", "exclusive"])
    async def test_of_eight_that_enqueue_one_key_at_once_one_gets_in(
        self,
        bench: Bench,
        partition: bool,
        policy: Policy,
    ) -> None:
        await self.define(bench, policy, partition)
        for round_ in range(3):

            async def enqueue(n: int, round_: int = round_) -> str:
                return (await bench.enqueue(f"{round_}-{n}", singleton_key=f"{round_}")).status

            answers = await bench.together(CLAIMERS, enqueue)
            assert Counter(answers) == {"queued": 1, "duplicate": CLAIMERS - 1}
