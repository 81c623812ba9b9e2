"""Storage contract: which claim gets which job, and when."""

from __future__ import annotations

from pgjq.lease import LeasePolicy
from pgjq.outcome import Failing, Released
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import Cases, case


class Claiming(Cases):
    """Which claim gets which job, and when."""

    @case
    async def test_higher_priority_first_then_in_order(self, bench: Bench) -> None:
        for job_id, priority in (("a", 0), ("b", 5), ("c", -3), ("d", 5), ("e", 0)):
            await bench.enqueue(job_id, priority=priority)
        assert [job.lease.id for job in await bench.claim()] == ["b", "d", "a", "e", "c"]

    @case
    async def test_no_more_than_asked_for(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b", "c")
        assert [job.lease.id for job in await bench.claim(2)] == ["a", "b"]
        assert [job.lease.id for job in await bench.claim(2)] == ["c"]
        assert await bench.claim(2) == []

    @case
    async def test_an_unknown_queue_is_empty(self, bench: Bench) -> None:
        assert await bench.claim(queue="missing") == []

    @case
    async def test_queues_are_served_in_the_order_named(self, bench: Bench) -> None:
        await bench.enqueue("a", queue="one", priority=9)
        await bench.enqueue("b", queue="two")
        jobs = await bench.ops.claim(["two", "one"], worker="ann", limit=2, policy=LeasePolicy())
        assert [(job.lease.queue, job.lease.id) for job in jobs] == [("two", "b"), ("one", "a")]

    @case
    async def test_a_delayed_job_waits_for_its_time(self, bench: Bench) -> None:
        await bench.enqueue("a", delay=30)
        assert (await bench.status("a")).state == "queued"
        bench.clock.advance(29)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert [job.lease.id for job in await bench.claim()] == ["a"]

    @case
    async def test_a_delayed_job_keeps_its_place(self, bench: Bench) -> None:
        await bench.enqueue("first", delay=10)
        await bench.enqueue("second")
        bench.clock.advance(10)
        assert [job.lease.id for job in await bench.claim()] == ["first", "second"]

    @case
    async def test_a_claim_counts_an_attempt_and_raises_the_lease(self, bench: Bench) -> None:
        await bench.enqueue("a", b"payload", max_attempts=5)
        job = await bench.claim_one()
        assert (job.payload, job.attempts, job.max_attempts, job.lease.number) == (b"payload", 1, 5, 1)
        await bench.settle(job, Failing(BOOM))
        again = await bench.claim_one()
        assert (again.attempts, again.lease.number) == (2, 2)

    @case
    async def test_a_claimed_job_shows_its_holder(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.claim(worker="ann")
        status = await bench.status("a")
        assert (status.state, status.worker, status.lease, status.attempts) == ("processing", "ann", 1, 1)
        assert status.locked_until is not None
        assert status.started_at is not None

    @case
    async def test_max_attempts_is_three_unless_said_otherwise(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert (await bench.claim_one()).max_attempts == 3

    @case
    async def test_retry_limit_is_one_less_than_max_attempts(self, bench: Bench) -> None:
        await bench.enqueue("a", retry_limit=4)
        assert (await bench.claim_one()).max_attempts == 5

    @case
    async def test_the_jobs_own_deadlines_come_before_the_workers(self, bench: Bench) -> None:
        await bench.enqueue("own", heartbeat_seconds=20, expire_in_seconds=50)
        await bench.enqueue("worker's")
        own, theirs = await bench.claim(lease=30.0, expire=900.0)
        assert (own.lease_seconds, own.expire_seconds) == (20, 50)
        assert (theirs.lease_seconds, theirs.expire_seconds) == (30, 900)

    @case
    async def test_a_retried_job_keeps_its_place(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b")
        (job,) = await bench.claim(1)
        await bench.settle(job, Failing(BOOM))
        assert [job.lease.id for job in await bench.claim()] == ["a", "b"]

    @case
    async def test_a_job_brings_its_options_along(self, bench: Bench) -> None:
        await bench.enqueue("a", retry_delay=2, retry_backoff=True, retry_delay_max=9)
        options = (await bench.claim_one()).options
        assert (options.retry_delay, options.retry_backoff, options.retry_delay_max) == (2, True, 9)

    @case
    async def test_concurrent_claims_share_the_jobs_out(self, bench: Bench) -> None:
        ids = [f"{n:03}" for n in range(200)]
        await bench.enqueue_all(*ids)
        claims = await bench.together(8, lambda n: self._claim_until_empty(bench, f"worker-{n}"))
        assert sorted(job_id for claimed in claims for job_id in claimed) == ids

    async def _claim_until_empty(self, bench: Bench, worker: str) -> list[str]:
        taken: list[str] = []
        misses = 0
        while misses < 3:
            jobs = await bench.claim(7, worker=worker)
            taken += [job.lease.id for job in jobs]
            misses += not jobs
        return taken

    @case
    async def test_a_claim_whose_answer_was_lost_can_be_found(self, bench: Bench) -> None:
        await bench.enqueue("a", b"\0", heartbeat_seconds=20, expire_in_seconds=50, retry_delay=7)
        before = await bench.claim_one()
        await bench.ops.save_checkpoint(before.lease, b"page 7")
        await bench.settle(before, Failing(BOOM))
        await bench.enqueue_all("b", "c")
        claim, policy = bench.ops.claim, LeasePolicy()
        lost = await claim([QUEUE], worker="ann", limit=2, policy=policy, claim_id=2**63 - 1)
        await claim([QUEUE], worker="ann", limit=1, policy=policy, claim_id=2**63 - 2)
        found = await bench.ops.find_claimed([QUEUE], 2**63 - 1)
        assert sorted(found, key=lambda job: job.lease.id) == lost
        assert [job.lease.id for job in lost] == ["a", "b"]
        assert await bench.ops.find_claimed([QUEUE], 1) == []
        assert await bench.settle(found[0], Released()) in ("queued", "failing")

    @case
    async def test_a_lost_claim_is_found_only_while_it_holds_the_job(self, bench: Bench) -> None:
        await bench.enqueue_all("settled", "reaped", "held")
        policy = LeasePolicy(lease=10, heartbeat=3)
        settled, _, held = await bench.ops.claim([QUEUE], worker="ann", limit=3, policy=policy, claim_id=7)
        await bench.settle(settled, Released())
        bench.clock.advance(9)
        await bench.ops.heartbeat([held.lease])
        bench.clock.advance(1)
        assert [job.id for job in await bench.ops.reap()] == ["reaped"]
        assert await bench.ops.find_claimed([QUEUE], 7) == [held]
        assert len(await bench.claim(worker="ann")) == 2
        assert await bench.ops.find_claimed([QUEUE], 7) == [held]
