"""Storage contract: which claim gets which job, and when."""

from __future__ import annotations

from pgjq.lease import LeasePolicy
from pgjq.outcome import Failing, Released
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness


class Claiming(Cases):
    """Which claim gets which job, and when."""

    @case
    async def test_higher_priority_first_then_in_order(self, harness: Harness) -> None:
        for job_id, priority in (("a", 0), ("b", 5), ("c", -3), ("d", 5), ("e", 0)):
            await harness.enqueue(job_id, priority=priority)
        assert [job.lease.id for job in await harness.claim()] == ["b", "d", "a", "e", "c"]

    @case
    async def test_no_more_than_asked_for(self, harness: Harness) -> None:
        await harness.enqueue_all("a", "b", "c")
        assert [job.lease.id for job in await harness.claim(2)] == ["a", "b"]
        assert [job.lease.id for job in await harness.claim(2)] == ["c"]
        assert await harness.claim(2) == []

    @case
    async def test_an_unknown_queue_is_empty(self, harness: Harness) -> None:
        assert await harness.claim(queue="missing") == []

    @case
    async def test_queues_are_served_in_the_order_named(self, harness: Harness) -> None:
        await harness.enqueue("a", queue="one", priority=9)
        await harness.enqueue("b", queue="two")
        jobs = await harness.ops.claim(["two", "one"], worker="ann", limit=2, policy=LeasePolicy())
        assert [(job.lease.queue, job.lease.id) for job in jobs] == [("two", "b"), ("one", "a")]

    @case
    async def test_a_delayed_job_waits_for_its_time(self, harness: Harness) -> None:
        await harness.enqueue("a", delay=30)
        assert (await harness.status("a")).state == "queued"
        harness.clock.advance(29)
        assert await harness.claim() == []
        harness.clock.advance(1)
        assert [job.lease.id for job in await harness.claim()] == ["a"]

    @case
    async def test_a_delayed_job_keeps_its_place(self, harness: Harness) -> None:
        await harness.enqueue("first", delay=10)
        await harness.enqueue("second")
        harness.clock.advance(10)
        assert [job.lease.id for job in await harness.claim()] == ["first", "second"]

    @case
    async def test_a_claim_counts_an_attempt_and_raises_the_lease(self, harness: Harness) -> None:
        await harness.enqueue("a", b"payload", max_attempts=5)
        job = await harness.claim_one()
        assert (job.payload, job.attempts, job.max_attempts, job.lease.number) == (b"payload", 1, 5, 1)
        await harness.settle(job, Failing(BOOM))
        again = await harness.claim_one()
        assert (again.attempts, again.lease.number) == (2, 2)

    @case
    async def test_a_claimed_job_shows_its_holder(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.claim(worker="ann")
        status = await harness.status("a")
        assert (status.state, status.worker, status.lease, status.attempts) == ("processing", "ann", 1, 1)
        assert status.locked_until is not None
        assert status.started_at is not None

    @case
    async def test_max_attempts_is_three_unless_said_otherwise(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert (await harness.claim_one()).max_attempts == 3

    @case
    async def test_retry_limit_is_one_less_than_max_attempts(self, harness: Harness) -> None:
        await harness.enqueue("a", retry_limit=4)
        assert (await harness.claim_one()).max_attempts == 5

    @case
    async def test_the_jobs_own_deadlines_come_before_the_workers(self, harness: Harness) -> None:
        await harness.enqueue("own", heartbeat_seconds=20, expire_in_seconds=50)
        await harness.enqueue("worker's")
        own, theirs = await harness.claim(lease=30.0, expire=900.0)
        assert (own.lease_seconds, own.expire_seconds) == (20, 50)
        assert (theirs.lease_seconds, theirs.expire_seconds) == (30, 900)

    @case
    async def test_a_retried_job_keeps_its_place(self, harness: Harness) -> None:
        await harness.enqueue_all("a", "b")
        (job,) = await harness.claim(1)
        await harness.settle(job, Failing(BOOM))
        assert [job.lease.id for job in await harness.claim()] == ["a", "b"]

    @case
    async def test_a_job_brings_its_options_along(self, harness: Harness) -> None:
        await harness.enqueue("a", retry_delay=2, retry_backoff=True, retry_delay_max=9)
        options = (await harness.claim_one()).options
        assert (options.retry_delay, options.retry_backoff, options.retry_delay_max) == (2, True, 9)

    @case
    async def test_concurrent_claims_share_the_jobs_out(self, harness: Harness) -> None:
        ids = [f"{n:03}" for n in range(200)]
        await harness.enqueue_all(*ids)
        claims = await harness.together(8, lambda n: self._claim_until_empty(harness, f"worker-{n}"))
        assert sorted(job_id for claimed in claims for job_id in claimed) == ids

    async def _claim_until_empty(self, harness: Harness, worker: str) -> list[str]:
        taken: list[str] = []
        misses = 0
        while misses < 3:
            jobs = await harness.claim(7, worker=worker)
            taken += [job.lease.id for job in jobs]
            misses += not jobs
        return taken

    @case
    async def test_a_claim_whose_answer_was_lost_can_be_found(self, harness: Harness) -> None:
        await harness.enqueue("a", b"\0", heartbeat_seconds=20, expire_in_seconds=50, retry_delay=7)
        before = await harness.claim_one()
        await harness.ops.save_checkpoint(before.lease, b"page 7")
        await harness.settle(before, Failing(BOOM))
        await harness.enqueue_all("b", "c")
        claim, policy = harness.ops.claim, LeasePolicy()
        lost = await claim([QUEUE], worker="ann", limit=2, policy=policy, claim_id=2**63 - 1)
        await claim([QUEUE], worker="ann", limit=1, policy=policy, claim_id=2**63 - 2)
        found = await harness.ops.find_claimed([QUEUE], 2**63 - 1)
        assert sorted(found, key=lambda job: job.lease.id) == lost
        assert [job.lease.id for job in lost] == ["a", "b"]
        assert await harness.ops.find_claimed([QUEUE], 1) == []
        assert await harness.settle(found[0], Released()) in ("queued", "failing")

    @case
    async def test_a_lost_claim_is_found_only_while_it_holds_the_job(self, harness: Harness) -> None:
        await harness.enqueue_all("settled", "reaped", "held")
        policy = LeasePolicy(lease=10, heartbeat=3)
        settled, _, held = await harness.ops.claim([QUEUE], worker="ann", limit=3, policy=policy, claim_id=7)
        await harness.settle(settled, Released())
        harness.clock.advance(9)
        await harness.ops.heartbeat([held.lease])
        harness.clock.advance(1)
        assert [job.id for job in await harness.ops.reap()] == ["reaped"]
        assert await harness.ops.find_claimed([QUEUE], 7) == [held]
        assert len(await harness.claim(worker="ann")) == 2
        assert await harness.ops.find_claimed([QUEUE], 7) == [held]
