"""Storage contract, policies: which jobs each policy accepts, and which it lets run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Unpack

import pytest

from pgjq.definition import define
from pgjq.errors import PolicyError
from pgjq.job import NewJob
from pgjq.job_settings import settings
from pgjq.options import Submission
from pgjq.outcome import Completed, Failed, Failing, Released
from pgjq.policy import POLICIES, Policy, place
from pgjq.storage.base import Definitions, Settlement
from pgjq.testing.applicable import requires
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import Cases, case

if TYPE_CHECKING:
    from pgjq.declared_options import QueueChanges, QueueOptions
    from pgjq.storage.base import Claimed

SERIAL: list[Policy] = ["singleton", "stately", "key_strict_fifo"]
CLAIMERS = 8


@requires("definitions")
class Policies(Cases):
    """Which jobs each policy accepts and lets run; in shared tables and in the queue's own."""

    @pytest.fixture(params=[False, True], ids=["together", "partition"])
    def partition(self, request: pytest.FixtureRequest) -> bool:
        return request.param

    async def define(
        self, bench: Bench, policy: Policy, partition: bool, name: str = QUEUE, **changes: Unpack[QueueChanges]
    ) -> None:
        options: QueueOptions = {"policy": policy, "partition": partition, **changes}
        await definitions(bench).create_queue(name, define(name, options))

    async def ids(self, bench: Bench, limit: int = 10) -> list[str]:
        return [job.lease.id for job in await bench.claim(limit)]

    async def fill(self, bench: Bench, *jobs: tuple[str, str]) -> None:
        """Enqueue jobs with keys in one call."""
        batch = [Submission(i, b"1", settings(NewJob(i, None, singleton_key=key))) for i, key in jobs]
        await bench.ops.enqueue(QUEUE, batch)

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

    # key_strict_fifo

    @case
    async def test_strict_order_needs_a_key(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "key_strict_fifo", partition)
        with pytest.raises(PolicyError, match="singleton_key"):
            await bench.enqueue("a")
        usual, keyed = settings(NewJob(None, None)), settings(NewJob(None, None, singleton_key="k"))
        with pytest.raises(PolicyError, match="'c'"):
            await bench.ops.enqueue(QUEUE, [Submission("b", b"1", keyed), Submission("c", b"1", usual)])
        assert (await bench.ops.stats(QUEUE)).total == 0

    @case
    async def test_strict_order_is_that_of_creation_whatever_the_priority(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "key_strict_fifo", partition)
        await self.fill(bench, ("3", "k"), ("1", "k"))
        await bench.enqueue("2", singleton_key="k", priority=9)
        await bench.enqueue("other", singleton_key="l", priority=-9)
        ran: list[str] = []
        for _ in range(3):
            jobs = await bench.claim()
            ran += [job.lease.id for job in jobs]
            for job in jobs:
                await bench.settle(job, Completed(b"1"))
        assert ran == ["3", "other", "1", "2"]

    @case
    async def test_in_strict_order_a_job_that_waits_for_its_time_holds_up_those_behind_it(
        self,
        bench: Bench,
        partition: bool,
    ) -> None:
        await self.define(bench, "key_strict_fifo", partition)
        await bench.enqueue("first", singleton_key="k", delay=60)
        await bench.enqueue("second", singleton_key="k")
        assert await self.ids(bench) == []
        bench.clock.advance(60)
        assert await self.ids(bench) == ["first"]

    @case
    async def test_in_strict_order_a_failing_job_goes_before_an_older_one_that_came_back(
        self,
        bench: Bench,
        partition: bool,
    ) -> None:
        await self.define(bench, "key_strict_fifo", partition)
        await self.fill(bench, ("older", "k"), ("failing", "k"), ("last", "k"))
        await bench.ops.cancel(QUEUE, "older")
        job = (await bench.claim())[0]
        assert job.lease.id == "failing"
        await bench.settle(job, Failing(BOOM))
        await bench.ops.retry(QUEUE, "older")
        for job_id in ("failing", "older", "last"):
            job = await bench.claim_one()
            assert job.lease.id == job_id
            await bench.settle(job, Completed(b"1"))

    @case
    async def test_in_strict_order_a_failing_job_blocks_its_key_until_it_is_done(
        self,
        bench: Bench,
        partition: bool,
    ) -> None:
        await self.define(bench, "key_strict_fifo", partition)
        await self.fill(bench, ("a1", "a"), ("a2", "a"), ("b1", "b"))
        jobs = await bench.claim()
        assert [job.lease.id for job in jobs] == ["a1", "b1"]
        await bench.settle(jobs[0], Failing(BOOM, delay=60))
        assert await self.ids(bench) == []
        bench.clock.advance(60)
        again = await bench.claim_one()
        assert again.lease.id == "a1"
        await bench.settle(again, Completed(b"1"))
        assert await self.ids(bench) == ["a2"]

    @case
    @pytest.mark.parametrize("way_out", ["delete", "retry"])
    async def test_in_strict_order_a_failed_job_blocks_its_key_until_it_is_deleted_or_retried(
        self,
        bench: Bench,
        partition: bool,
        way_out: str,
    ) -> None:
        await self.define(bench, "standard", partition=False, name="letters")
        await self.define(bench, "key_strict_fifo", partition, dead_letter="letters", delete_after_seconds=10)
        await self.fill(bench, ("a1", "a"), ("a2", "a"), ("b1", "b"))
        jobs = await bench.claim()
        await bench.settle(jobs[0], Failed(BOOM))
        assert await definitions(bench).blocked_keys(QUEUE) == ["a"]
        assert (await bench.ops.stats("letters")).queued == 1
        bench.clock.advance(13 * 86400)
        await bench.ops.prune()
        assert await self.ids(bench) == []
        assert (await bench.enqueue("a1", singleton_key="a")).existing_state == "failed"
        if way_out == "delete":
            assert await bench.ops.delete(QUEUE, ["a1"]) == 1
            assert await self.ids(bench) == ["a2"]
        else:
            await bench.ops.retry(QUEUE, "a1")
            assert await self.ids(bench) == ["a1"]
        assert await definitions(bench).blocked_keys(QUEUE) == []

    @case
    async def test_age_does_not_unblock_a_key_whose_job_is_failing(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "key_strict_fifo", partition, retention_seconds=10)
        await self.fill(bench, ("a1", "a"))
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=5))
        bench.clock.advance(1000)
        assert await bench.ops.prune() == 0
        assert await self.ids(bench) == ["a1"]

    @case
    async def test_age_does_not_unblock_a_key_whose_job_stalled_too_often(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "key_strict_fifo", partition, delete_after_seconds=10)
        await bench.enqueue("a", singleton_key="k", max_attempts=1, result_ttl=10)
        await bench.claim_one(lease=30)
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["failed"]
        bench.clock.advance(1000)
        assert await bench.ops.prune() == 0
        assert await definitions(bench).blocked_keys(QUEUE) == ["k"]

    @case
    async def test_blocked_keys_are_for_queues_in_strict_order(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "singleton", partition)
        with pytest.raises(PolicyError, match="key_strict_fifo"):
            await definitions(bench).blocked_keys(QUEUE)

    # one at a time, however a run ends

    @case
    @pytest.mark.parametrize("policy", SERIAL)
    @pytest.mark.parametrize("end", ["complete", "fail", "cancel", "reap"])
    async def test_when_a_job_has_gone_the_next_of_its_key_runs(
        self,
        bench: Bench,
        partition: bool,
        policy: Policy,
        end: str,
    ) -> None:
        await self.define(bench, policy, partition)
        await bench.enqueue("1", singleton_key="k", max_attempts=1)
        first = await bench.claim_one()
        await bench.enqueue("2", singleton_key="k")
        assert await self.ids(bench) == []
        match end:
            case "complete":
                await bench.settle(first, Completed(b"1"))
            case "fail":
                await bench.settle(first, Failed(BOOM))
            case "cancel":
                await bench.ops.cancel(QUEUE, "1", active=True)
                await bench.settle(first, Released())
            case _:
                bench.clock.advance(30)
                assert [r.action for r in await bench.ops.reap()] == ["failed"]
        blocked = policy == "key_strict_fifo" and end in ("fail", "reap")
        assert await self.ids(bench) == ([] if blocked else ["2"])

    @case
    @pytest.mark.parametrize("policy", ["singleton", "key_strict_fifo"])
    @pytest.mark.parametrize("end", ["cancel", "delete", "prune"])
    async def test_when_a_waiting_job_is_taken_out_those_behind_it_run(
        self,
        bench: Bench,
        partition: bool,
        policy: Policy,
        end: str,
    ) -> None:
        await self.define(bench, policy, partition)
        await self.fill(bench, ("1", "k"))
        first = await bench.claim_one(lease=None, heartbeat=None, expire=None)
        await bench.enqueue("2", singleton_key="k", retention_seconds=10)
        await bench.enqueue("3", singleton_key="k")
        assert await self.ids(bench) == []
        match end:
            case "cancel":
                await bench.ops.cancel(QUEUE, "2")
            case "delete":
                await bench.ops.delete(QUEUE, ["2"])
            case _:
                bench.clock.advance(10)
                assert await bench.ops.prune() == 1
        await bench.settle(first, Completed(b"1"))
        assert await self.ids(bench) == ["3"]

    @case
    @pytest.mark.parametrize("policy", ["singleton", "key_strict_fifo"])
    async def test_a_thousand_jobs_of_a_busy_key_hide_nobody(
        self,
        bench: Bench,
        partition: bool,
        policy: Policy,
    ) -> None:
        await self.define(bench, policy, partition)
        await self.fill(bench, *((f"a{n}", "a") for n in range(1000)), ("b", "b"))
        assert await self.ids(bench, 2) == ["a0", "b"]

    @case
    async def test_somebody_who_sleeps_is_woken_when_a_key_is_free(self, bench: Bench, partition: bool) -> None:
        await self.define(bench, "singleton", partition)
        await self.fill(bench, ("1", "k"), ("2", "k"))
        first = await bench.claim_one()
        assert not await bench.ops.wait_for_work([QUEUE], 0.05)

        async def sleep_or_settle(n: int) -> bool:
            if n == 0:
                return await bench.ops.wait_for_work([QUEUE], 30)
            await bench.settle(first, Completed(b"1"))
            return True

        assert await bench.together(2, sleep_or_settle) == [True, True]
        assert await self.ids(bench) == ["2"]

    @case
    @pytest.mark.parametrize("policy", POLICIES)
    async def test_eight_claimers_never_run_more_of_a_key_than_they_may_and_lose_none(
        self,
        bench: Bench,
        partition: bool,
        policy: Policy,
    ) -> None:
        """Each claims, checks that it alone has its keys, and releases or completes, in strict order."""
        await self.define(bench, policy, partition)
        keys = [f"k{n}" for n in range(5)]
        each = 1 if place(policy, "queued") else 8
        alone = place(policy, "processing") is not None
        await self.fill(bench, *((f"{key}-{n}", key) for n in range(each) for key in keys))
        running: Counter[str] = Counter()
        done: list[str] = []

        async def work(worker: int) -> None:
            idle = 0
            while len(done) < len(keys) * each and idle < 500:
                jobs = await bench.claim(3, worker=f"w{worker}")
                idle = 0 if jobs else idle + 1
                running.update(key_of(job) for job in jobs)
                assert not alone or all(running[key_of(job)] == 1 for job in jobs)
                for turn, job in enumerate(jobs):
                    running[key_of(job)] -= 1
                    back = job.attempts == 1 and turn == 0
                    if not back:
                        done.append(job.lease.id)
                    (answer,) = await bench.ops.settle([Settlement(job.lease, Failing(BOOM) if back else Completed())])
                    assert answer.state == ("failing" if back else "completed")

        await bench.together(CLAIMERS, work)
        assert sorted(done) == sorted(f"{key}-{n}" for key in keys for n in range(each))
        if policy == "key_strict_fifo":
            for key in keys:
                assert [i for i in done if i.startswith(f"{key}-")] == [f"{key}-{n}" for n in range(each)]


def definitions(bench: Bench) -> Definitions:
    """Return the operations of a storage with definitions."""
    return bench.ops  # pyright: ignore[reportReturnType]


def key_of(job: Claimed) -> str:
    return job.lease.id.partition("-")[0]
