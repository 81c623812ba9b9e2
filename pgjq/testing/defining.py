"""Storage contract, definitions: queues, inherited options, dead letters, time slots."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

import pytest

from pgjq.definition import Definition, define
from pgjq.errors import PolicyError, QueueNotFoundError
from pgjq.job import JobSource
from pgjq.options import JobFilter
from pgjq.outcome import Completed, Failed, Failing
from pgjq.testing.applicable import requires
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import Cases, case
from pgjq.testing.policies import definitions
from pgjq.testing.waiting import PATIENCE, result_waiter

if TYPE_CHECKING:
    from pgjq.declared_options import QueueOptions
    from pgjq.job import JobStatus, QueueInfo

DAY = 86400


@requires("definitions")
class Defining(Cases):
    """Queues, options that jobs inherit, dead letters, time slots."""

    async def create(self, bench: Bench, name: str = QUEUE, **given: Unpack[QueueOptions]) -> None:
        await definitions(bench).create_queue(name, define(name, given))

    async def info(self, bench: Bench, name: str = QUEUE) -> QueueInfo:
        (info,) = await definitions(bench).queues(name)
        return info

    async def letters(self, bench: Bench, queue: str = "letters") -> list[JobStatus]:
        return (await bench.ops.find(JobFilter(queue=queue)))[0]

    # definitions

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

    # dead letters

    @case
    async def test_a_job_that_has_failed_is_copied_to_its_dead_letter_queue(self, bench: Bench) -> None:
        await self.create(bench, "letters", expire_in_seconds=77)
        await self.create(
            bench, dead_letter="letters", retry_limit=1, retry_delay=3, retention_seconds=500, delete_after_seconds=9000
        )
        await bench.enqueue("a", b"payload", priority=4, singleton_key="k")
        assert await bench.settle(await bench.claim_one(), Failing(BOOM)) == "failing"
        assert await self.letters(bench) == []
        assert await bench.settle(await bench.claim_one(), Failed(BOOM)) == "failed"
        (letter,) = await self.letters(bench)
        assert letter.source == JobSource(QUEUE, "a", 2, BOOM)
        assert (letter.state, letter.max_attempts, letter.priority) == ("queued", 2, 4)
        (job,) = await bench.claim(queue="letters")
        assert (job.payload, job.expire_seconds, job.options.retry_delay) == (b"payload", 77, 3)
        assert (job.options.retention_seconds, job.options.delete_after_seconds) == (500, 9000)
        assert (await bench.status("a")).source is None

    @case
    async def test_a_job_that_stalled_too_often_is_copied_too(self, bench: Bench) -> None:
        await self.create(bench, "letters")
        await bench.enqueue("a", dead_letter="letters", max_attempts=1)
        await bench.claim_one(lease=30)
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["failed"]
        (letter,) = await self.letters(bench)
        assert letter.source is not None
        assert letter.source.error is not None
        assert (letter.source.id, letter.source.error.type) == ("a", "Stalled")

    @case
    async def test_dead_letters_of_dead_letters_go_on(self, bench: Bench) -> None:
        await self.create(bench, "last")
        await self.create(bench, "letters", dead_letter="last")
        await bench.fail("a", dead_letter="letters")
        (job,) = await bench.claim(queue="letters")
        await bench.settle(job, Failed(BOOM))
        (letter,) = await self.letters(bench, "last")
        assert letter.source == JobSource("letters", job.lease.id, 1, BOOM)
        (job,) = await bench.claim(queue="last")
        await bench.settle(job, Failed(BOOM))
        assert len(await self.letters(bench, "last")) == 1

    @case
    async def test_a_dead_letter_queue_in_strict_order_gets_a_key(self, bench: Bench) -> None:
        await self.create(bench, "letters", policy="key_strict_fifo")
        await bench.fail("a", dead_letter="letters")
        (letter,) = await self.letters(bench)
        assert letter.singleton_key == "a"

    @case
    async def test_dead_letters_are_sent_back_to_where_they_came_from(self, bench: Bench) -> None:
        await self.create(bench, "letters")
        await self.create(bench, dead_letter="letters")
        for job_id in ("a", "b", "c"):
            await bench.fail(job_id)
        await bench.ops.delete(QUEUE, ["b"])
        assert await definitions(bench).redrive("letters", limit=2) == 2
        assert len(await self.letters(bench)) == 1
        assert sorted([job.lease.id for job in await bench.claim()]) == ["a", "b"]
        assert await definitions(bench).redrive("letters", limit=10, to="elsewhere") == 1
        (job,) = await bench.claim(queue="elsewhere")
        assert job.lease.id == "c"
        assert await definitions(bench).redrive("letters", limit=10) == 0

    @case
    async def test_a_letter_that_has_no_place_stays_and_is_in_nobodys_way(self, bench: Bench) -> None:
        await self.create(bench, "letters")
        await self.create(bench, policy="exclusive", dead_letter="letters")
        for job_id, key in (("a", "k"), ("c", "l")):
            await bench.fail(job_id, singleton_key=key)
        await bench.enqueue("b", singleton_key="k")
        assert await definitions(bench).redrive("letters", limit=1) == 1
        assert await definitions(bench).redrive("letters", limit=10) == 0
        (letter,) = await self.letters(bench)
        assert (letter.source or JobSource("", "", 0, None)).id == "a"
        await self.create(bench, "strict", policy="key_strict_fifo")
        await bench.enqueue("keyless", queue="other", dead_letter="letters")
        (keyless,) = await bench.claim(queue="other")
        await bench.settle(keyless, Failed(BOOM))
        assert await definitions(bench).redrive("letters", limit=10, to="strict") == 1

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

    # time slots

    @case
    async def test_a_slot_of_time_has_one_job_of_a_key(self, bench: Bench) -> None:
        assert (await bench.enqueue("a", singleton_seconds=60)).status == "queued"
        refused = await bench.enqueue("b", singleton_seconds=60)
        assert (refused.status, refused.existing_state) == ("duplicate", "queued")
        assert (await bench.enqueue("c", singleton_seconds=60, singleton_key="k")).status == "queued"
        await bench.settle((await bench.claim())[0], Completed(b"1"))
        bench.clock.advance(59)
        assert (await bench.enqueue("d", singleton_seconds=60)).existing_state == "completed"
        bench.clock.advance(1)
        assert (await bench.enqueue("e", singleton_seconds=60)).status == "queued"
        assert (await bench.enqueue("free")).status == "queued"

    @case
    async def test_a_job_that_is_too_many_may_have_the_next_slot(self, bench: Bench) -> None:
        await bench.enqueue("a", debounce=60)
        bench.clock.advance(20)
        assert (await bench.enqueue("b", debounce=60)).status == "queued"
        assert (await bench.enqueue("c", singleton_seconds=60, singleton_next_slot=True)).status == "duplicate"
        assert [job.lease.id for job in await bench.claim()] == ["a"]
        bench.clock.advance(39)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert [job.lease.id for job in await bench.claim()] == ["b"]
        assert (await bench.enqueue("d", singleton_seconds=60)).existing_state == "processing"

    @case
    @pytest.mark.parametrize("hours", [-1, 1])
    async def test_a_slot_of_time_leaves_a_jobs_own_time_as_it_is(self, bench: Bench, hours: int) -> None:
        await bench.enqueue("probe")
        run_at = (await bench.status("probe")).created_at + timedelta(hours=hours, seconds=0.5)
        assert (await bench.enqueue("a", singleton_seconds=60, run_at=run_at)).status == "queued"
        assert (await bench.status("a")).run_at == run_at
        assert (await bench.enqueue("b", singleton_seconds=60)).status == "duplicate"
        assert [job.lease.id for job in await bench.claim()] == ["probe", "a"][: 1 if hours > 0 else 2]

    @case
    async def test_the_next_slot_runs_no_job_before_its_own_time(self, bench: Bench) -> None:
        for key in ("past", "future", "delay", "soon"):
            await bench.enqueue(key, singleton_key=key, debounce=60)
        now = (await bench.status("past")).created_at
        own: dict[str, dict[str, Any]] = {
            "past": {"run_at": now - timedelta(hours=1)},
            "future": {"run_at": now + timedelta(hours=1)},
            "delay": {"delay": 3600},
            "soon": {"delay": 1},
        }
        for key, options in own.items():
            await bench.enqueue(f"next {key}", singleton_key=key, debounce=60, **options)
        waits = {key: (await bench.status(f"next {key}")).run_at for key in own}
        slot, hour = now + timedelta(seconds=60), now + timedelta(hours=1)
        assert waits == {"past": slot, "future": hour, "delay": hour, "soon": slot}

    @case
    @pytest.mark.parametrize("end", ["cancel", "delete"])
    async def test_a_job_that_is_withdrawn_gives_its_slot_back(self, bench: Bench, end: str) -> None:
        await bench.enqueue("a", singleton_seconds=60)
        if end == "cancel":
            await bench.ops.cancel(QUEUE, "a")
        else:
            await bench.ops.delete(QUEUE, ["a"])
        assert (await bench.enqueue("b", singleton_seconds=60)).status == "queued"
        assert (await bench.enqueue("c", singleton_seconds=60)).status == "duplicate"

    @case
    async def test_of_eight_that_want_one_slot_one_gets_it(self, bench: Bench) -> None:
        async def enqueue(n: int) -> str:
            return (await bench.enqueue(f"{n}", singleton_seconds=60)).status

        assert sorted(await bench.together(8, enqueue)) == ["duplicate"] * 7 + ["queued"]

    # statistics and warnings

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
