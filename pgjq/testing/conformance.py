"""The contract of a storage as a test suite.

Subclass `StorageConformance` in a test module of your own, with two fixtures: `storage`, a fresh and empty one for each
test, and `clock`, which moves the time that it goes by (`pgjq.testing.clock`). Every case then runs twice, in the blocking
and in the async colour. The cases speak of behaviour alone; what a storage does not promise is not asked of it, but that
it says so.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import pytest

from pgjq.errors import StorageError, UnsupportedError
from pgjq.lease import LeasePolicy
from pgjq.options import JobFilter, Settings, Submission
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.storage.base import Settlement
from pgjq.testing.bench import BOOM, QUEUE, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pgjq.blocking import Colour
    from pgjq.storage.base import Storage
    from pgjq.testing.clock import Clock

TWENTY = 20


P = ParamSpec("P")


def case(
    coroutine: Callable[Concatenate[Any, Bench, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, Bench, P], None]:
    """Make a test of a coroutine: it runs in the colour of its bench."""

    @functools.wraps(coroutine)
    def test(self: Any, bench: Bench, *args: P.args, **kwargs: P.kwargs) -> None:
        bench.run(coroutine(self, bench, *args, **kwargs))

    return test


class _Cases:
    @pytest.fixture(params=["blocking", "async"])
    def colour(self, request: pytest.FixtureRequest) -> Colour:
        return request.param

    @pytest.fixture
    def bench(self, storage: Storage, clock: Clock, colour: Colour) -> Bench:
        return Bench(storage, clock, colour)


class Enqueueing(_Cases):
    """Ids, deduplication and order."""

    @case
    async def test_a_free_id_is_queued(self, bench: Bench) -> None:
        result = await bench.enqueue("a")
        assert (result.status, result.id, result.existing_state) == ("queued", "a", None)
        assert await bench.state("a") == "queued"

    @case
    async def test_an_id_is_taken_while_its_job_lives(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert (await bench.enqueue("a")).existing_state == "queued"
        job = await bench.claim_one()
        assert (await bench.enqueue("a")).existing_state == "processing"
        await bench.settle(job, Failing(BOOM, delay=60))
        again = await bench.enqueue("a")
        assert (again.status, again.existing_state) == ("duplicate", "failing")

    @case
    async def test_a_completed_id_answers_with_its_result_until_that_expires(self, bench: Bench) -> None:
        await bench.complete("a", b'"first"', result_ttl=60)
        bench.clock.advance(59)
        again = await bench.enqueue("a")
        assert (again.status, again.existing_state, again.result) == ("completed", "completed", b'"first"')
        bench.clock.advance(1)
        assert (await bench.enqueue("a", b"2")).status == "queued"
        assert (await bench.claim_one()).payload == b"2"

    @case
    async def test_a_failed_id_is_enqueued_as_a_new_run(self, bench: Bench) -> None:
        await bench.fail("a")
        assert (await bench.enqueue("a", b"2")).status == "queued"
        job = await bench.claim_one()
        assert (job.payload, job.attempts) == (b"2", 1)

    @case
    async def test_a_failed_id_can_be_asked_to_count_as_taken(self, bench: Bench) -> None:
        await bench.fail("a", result_ttl=60)
        again = await bench.enqueue("a", on_failed="duplicate")
        assert (again.status, again.existing_state) == ("duplicate", "failed")
        bench.clock.advance(60)
        assert (await bench.enqueue("a", on_failed="duplicate")).status == "queued"

    @case
    async def test_a_cancelled_id_is_free_at_once_and_only_the_newer_payload_runs(self, bench: Bench) -> None:
        await bench.enqueue("a", b"old")
        await bench.ops.cancel(QUEUE, "a")
        assert (await bench.enqueue("a", b"new")).status == "queued"
        assert [job.payload for job in await bench.claim()] == [b"new"]

    @case
    async def test_the_first_accepted_enqueue_settles_the_ttl(self, bench: Bench) -> None:
        await bench.enqueue("a", result_ttl=10)
        await bench.enqueue("a", result_ttl=1000)
        await bench.settle(await bench.claim_one(), Completed(b"1"))
        bench.clock.advance(10)
        assert (await bench.status("a")).result is None

    @case
    async def test_an_id_twice_in_one_batch_is_queued_once(self, bench: Bench) -> None:
        results = await bench.enqueue_all("b", "a", "b", "c", "a")
        assert [r.status for r in results] == ["queued", "queued", "duplicate", "queued", "duplicate"]
        assert [r.id for r in results] == ["b", "a", "b", "c", "a"]
        assert [job.lease.id for job in await bench.claim()] == ["b", "a", "c"]

    @case
    async def test_a_batch_mixes_free_and_taken_ids(self, bench: Bench) -> None:
        await bench.complete("done", b"7")
        await bench.enqueue("queued")
        results = await bench.enqueue_all("new", "done", "queued", "newer")
        assert [r.status for r in results] == ["queued", "completed", "duplicate", "queued"]
        assert results[1].result == b"7"

    @case
    async def test_queues_do_not_share_ids(self, bench: Bench) -> None:
        await bench.enqueue("a", queue="one")
        assert (await bench.enqueue("a", queue="two")).status == "queued"
        assert [job.lease.queue for job in await bench.claim(queue="two")] == ["two"]

    @case
    async def test_any_text_can_be_an_id(self, bench: Bench) -> None:
        ids = ["a:b", "../../etc", "a b", "ü€😀", '"{}\\,', "NULL", "%s", "'; drop table job; --", "x" * 512, "\t\n"]
        assert all(r.status == "queued" for r in await bench.enqueue_all(*ids))
        assert [job.lease.id for job in await bench.claim(limit=20)] == ids
        assert set(await bench.ops.get(QUEUE, ids)) == set(ids)

    @case
    async def test_any_bytes_can_be_a_payload(self, bench: Bench) -> None:
        payloads = [b"", b"\0\xff\\\"'", bytes(range(256)), b"x" * 1_000_000]
        for n, payload in enumerate(payloads):
            await bench.enqueue(str(n), payload)
        assert [job.payload for job in await bench.claim()] == payloads

    @case
    async def test_made_ids_are_queued_in_order(self, bench: Bench) -> None:
        usual = Settings()
        jobs = [Submission(str(n), b'{"n": "\\t"}', usual) for n in range(300)]
        results = await bench.ops.enqueue(QUEUE, jobs, made_ids=True)
        assert {r.status for r in results} == {"queued"}
        assert [job.lease.id for job in await bench.claim(limit=300)] == [str(n) for n in range(300)]

    @case
    async def test_no_jobs_are_no_trouble(self, bench: Bench) -> None:
        assert await bench.ops.enqueue(QUEUE, []) == []

    @case
    async def test_a_connection_is_refused_by_a_storage_without_transactions(self, bench: Bench) -> None:
        if not bench.storage.promises.transactions:
            with pytest.raises(UnsupportedError):
                await bench.ops.enqueue(QUEUE, [], connection=object())

    @case
    async def test_twenty_callers_with_one_id_queue_it_once(self, bench: Bench) -> None:
        results = await bench.together(TWENTY, lambda _: bench.enqueue("a"))
        assert sorted(r.status for r in results) == ["duplicate"] * (TWENTY - 1) + ["queued"]

    @case
    async def test_twenty_callers_with_an_expired_id_queue_it_once(self, bench: Bench) -> None:
        await bench.complete("a", result_ttl=1)
        bench.clock.advance(2)
        results = await bench.together(TWENTY, lambda _: bench.enqueue("a"))
        assert sorted(r.status for r in results) == ["duplicate"] * (TWENTY - 1) + ["queued"]
        assert len(await bench.claim()) == 1

    @case
    async def test_enqueueing_an_id_while_it_is_completed_is_either_or(self, bench: Bench) -> None:
        for round_ in range(10):
            job_id = f"a{round_}"
            await bench.enqueue(job_id)
            job = await bench.claim_one()
            results = await bench.together(TWENTY, lambda n: self._complete_or_enqueue(bench, job, n))
            assert results.pop(0) == "completed"
            assert set(results) <= {"duplicate", "completed"}
            assert await bench.claim() == []

    async def _complete_or_enqueue(self, bench: Bench, job: Any, n: int) -> str | None:
        if n == 0:
            return await bench.settle(job, Completed(b"1"))
        return (await bench.enqueue(job.lease.id)).status

    @case
    async def test_overlapping_batches_in_different_orders_do_not_deadlock(self, bench: Bench) -> None:
        ids = [str(n) for n in range(40)]

        async def batch(n: int) -> list[str]:
            return [r.status for r in await bench.enqueue_all(*(ids if n % 2 else reversed(ids)))]

        results = await bench.together(8, batch)
        assert sum(status == "queued" for statuses in results for status in statuses) == len(ids)


class Claiming(_Cases):
    """Who gets which job, and when."""

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
        assert await bench.claim(queue="nobody's") == []

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
        while misses < 3:  # noqa: PLR2004  (a claim may come up short while others hold the rows)
            jobs = await bench.claim(7, worker=worker)
            taken += [job.lease.id for job in jobs]
            misses += not jobs
        return taken


class Settling(_Cases):
    """How runs end, and the fence."""

    @case
    async def test_a_completed_job_has_its_result(self, bench: Bench) -> None:
        await bench.complete("a", b"\0result")
        status = await bench.status("a")
        assert (status.state, status.result, status.attempts) == ("completed", b"\0result", 1)
        assert status.finished_at is not None
        assert status.error is None

    @case
    async def test_a_failed_job_has_its_error(self, bench: Bench) -> None:
        await bench.fail("a")
        status = await bench.status("a")
        assert (status.state, status.error, status.result) == ("failed", BOOM, None)

    @case
    async def test_a_failing_job_shows_its_error_and_runs_again(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert await bench.settle(await bench.claim_one(), Failing(BOOM)) == "failing"
        status = await bench.status("a")
        assert (status.state, status.error, status.attempts) == ("failing", BOOM, 1)
        assert (await bench.claim_one()).attempts == 2

    @case
    async def test_a_retry_waits_for_its_delay(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=10))
        bench.clock.advance(9)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert len(await bench.claim()) == 1

    @case
    async def test_a_released_job_gets_its_attempt_back(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        assert await bench.settle(await bench.claim_one(), Released()) == "queued"
        assert (await bench.status("a")).attempts == 0
        again = await bench.claim_one()
        assert (again.attempts, again.lease.number) == (1, 2)

    @case
    async def test_a_released_retry_is_failing_again(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.settle(await bench.claim_one(), Failing(BOOM))
        assert await bench.settle(await bench.claim_one(), Released()) == "failing"
        assert (await bench.status("a")).attempts == 1

    @case
    async def test_a_snoozed_job_comes_back_without_counting(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert await bench.settle(await bench.claim_one(), Snoozed(delay=5)) == "queued"
        assert await bench.claim() == []
        bench.clock.advance(5)
        assert (await bench.claim_one()).attempts == 1

    @case
    async def test_a_run_can_end_as_cancelled(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert await bench.settle(await bench.claim_one(), Cancelled()) == "cancelled"
        assert await bench.state("a") == "cancelled"

    @case
    async def test_a_batch_of_different_outcomes_is_settled_one_by_one(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b", "c", "d")
        jobs = await bench.claim()
        outcomes = [Completed(b"1"), Failing(BOOM), Failed(BOOM), Released()]
        settled = await bench.ops.settle([Settlement(j.lease, o) for j, o in zip(jobs, outcomes, strict=True)])
        assert [s.state for s in settled] == ["completed", "failing", "failed", "queued"]
        assert [s.lease for s in settled] == [job.lease for job in jobs]

    @case
    async def test_settling_twice_changes_nothing(self, bench: Bench) -> None:
        job = await bench.complete("a", b"first")
        assert await bench.settle(job, Completed(b"second")) is None
        assert await bench.settle(job, Failed(BOOM)) is None
        assert (await bench.status("a")).result == b"first"

    @case
    @pytest.mark.parametrize("late", [Completed(b"late"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1), Cancelled()])
    async def test_an_old_lease_changes_nothing(self, bench: Bench, late: Any) -> None:
        await bench.enqueue("a")
        stalled = await bench.claim_one(lease=10, heartbeat=3)
        bench.clock.advance(10)
        await bench.ops.reap()
        assert await bench.settle(stalled, late) is None
        current = await bench.claim_one(worker="bob")
        assert await bench.settle(stalled, late) is None
        assert (await bench.status("a")).worker == "bob"
        assert await bench.settle(current, Completed(b"good")) == "completed"
        assert await bench.settle(stalled, late) is None
        assert (await bench.status("a")).result == b"good"

    @case
    async def test_a_result_is_gone_for_readers_when_its_time_has_passed(self, bench: Bench) -> None:
        await bench.complete("short", result_ttl=10)
        await bench.complete("long", result_ttl=20)
        bench.clock.advance(10)
        assert (await bench.status("short")).result is None
        assert (await bench.status("long")).result == b'"ok"'
        assert await bench.state("short") == "completed"

    @case
    async def test_an_error_is_gone_for_readers_when_its_time_has_passed(self, bench: Bench) -> None:
        await bench.fail("a", result_ttl=10)
        bench.clock.advance(10)
        assert (await bench.status("a")).error is None

    @case
    async def test_nothing_to_settle_is_no_trouble(self, bench: Bench) -> None:
        assert await bench.ops.settle([]) == []

    @case
    async def test_rivals_for_one_lease_settle_it_once(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        states = await bench.together(8, lambda n: bench.settle(job, Completed(str(n).encode())))
        assert sorted(state or "" for state in states) == [""] * 7 + ["completed"]


class Leasing(_Cases):
    """Heartbeats, checkpoints and the two deadlines."""

    @case
    async def test_a_heartbeat_moves_the_deadline_ahead(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one(lease=30, heartbeat=10)
        for _ in range(5):
            bench.clock.advance(29)
            pulse = await bench.ops.heartbeat([job.lease], worker="ann")
            assert (pulse.lost, pulse.cancel_requested) == ([], [])
            assert await bench.ops.reap() == []
        bench.clock.advance(30)
        assert [r.id for r in await bench.ops.reap()] == ["a"]

    @case
    async def test_a_heartbeat_learns_what_is_lost(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b", "c")
        jobs = await bench.claim()
        await bench.settle(jobs[0], Completed(b"1"))
        await bench.settle(jobs[1], Released())
        pulse = await bench.ops.heartbeat([job.lease for job in jobs], worker="ann")
        assert pulse.lost == [jobs[0].lease, jobs[1].lease]

    @case
    async def test_a_heartbeat_cannot_outlive_the_attempts_expiry(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one(lease=30, expire=50)
        bench.clock.advance(29)
        await bench.ops.heartbeat([job.lease], worker="ann")
        bench.clock.advance(21)
        (stalled,) = await bench.ops.reap()
        assert (stalled.reason, stalled.action) == ("expired", "recovered")

    @case
    async def test_a_heartbeat_learns_of_a_wish_to_cancel(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b")
        jobs = await bench.claim()
        await bench.ops.cancel(QUEUE, "a", active=True)
        pulse = await bench.ops.heartbeat([job.lease for job in jobs], worker="ann")
        assert (pulse.lost, pulse.cancel_requested) == ([], [jobs[0].lease])

    @case
    async def test_without_a_lease_only_the_expiry_counts(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one(lease=None, heartbeat=None, expire=100)
        bench.clock.advance(99)
        assert await bench.ops.reap() == []
        assert (await bench.ops.heartbeat([job.lease], worker="ann")).lost == []
        bench.clock.advance(1)
        assert [r.reason for r in await bench.ops.reap()] == ["expired"]

    @case
    async def test_without_any_deadline_a_job_is_never_reaped(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.claim_one(lease=None, heartbeat=None, expire=None)
        bench.clock.advance(10_000_000)
        assert await bench.ops.reap() == []
        assert await bench.ops.next_deadline() is None

    @case
    async def test_a_checkpoint_survives_retries_and_reaping(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=5)
        job = await bench.claim_one()
        assert job.checkpoint is None
        assert await bench.ops.save_checkpoint(job.lease, b"page 7")
        await bench.settle(job, Failing(BOOM))
        job = await bench.claim_one(lease=10, heartbeat=3)
        assert job.checkpoint == b"page 7"
        assert await bench.ops.save_checkpoint(job.lease, b"page 9")
        bench.clock.advance(10)
        await bench.ops.reap()
        assert (await bench.claim_one()).checkpoint == b"page 9"

    @case
    async def test_a_checkpoint_under_an_old_lease_is_refused(self, bench: Bench) -> None:
        await bench.enqueue("a")
        old = await bench.claim_one()
        await bench.settle(old, Released())
        assert not await bench.ops.save_checkpoint(old.lease, b"late")
        current = await bench.claim_one()
        assert not await bench.ops.save_checkpoint(old.lease, b"late")
        await bench.settle(current, Released())
        assert (await bench.claim_one()).checkpoint is None


class Reaping(_Cases):
    """What becomes of jobs whose worker did not come back."""

    @case
    async def test_a_job_whose_lease_lapsed_runs_again(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.claim_one(lease=30, heartbeat=10)
        bench.clock.advance(29)
        assert await bench.ops.reap() == []
        bench.clock.advance(1)
        (stalled,) = await bench.ops.reap()
        assert (stalled.queue, stalled.id, stalled.count) == (QUEUE, "a", 1)
        assert (stalled.action, stalled.reason) == ("recovered", "lease")
        assert await bench.ops.reap() == []
        status = await bench.status("a")
        assert (status.state, status.worker, status.locked_until, status.stalled) == ("failing", None, None, 1)
        assert (await bench.claim_one()).attempts == 2

    @case
    async def test_no_attempts_left_is_failed(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        await bench.claim_one(lease=30, heartbeat=10)
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["failed"]
        status = await bench.status("a")
        assert status.state == "failed"
        assert status.error is not None
        assert (status.error.type, "ann" in status.error.message) == ("Stalled", True)

    @case
    async def test_no_attempts_left_runs_once_more_if_the_policy_says_so(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        await bench.claim_one(lease=30, heartbeat=10, reap_exhausted="requeue")
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["recovered"]
        assert (await bench.claim_one()).attempts == 2

    @case
    @pytest.mark.parametrize("allowed", [0, 1, 2])
    async def test_one_stall_more_than_allowed_is_failed(self, bench: Bench, allowed: int) -> None:
        await bench.enqueue("a", max_attempts=10)
        actions: list[str] = []
        for _ in range(allowed + 1):
            await bench.claim_one(lease=30, heartbeat=10, max_stalled=allowed)
            bench.clock.advance(30)
            actions += [r.action for r in await bench.ops.reap()]
        assert actions == ["recovered"] * allowed + ["failed"]

    @case
    async def test_a_wish_to_cancel_comes_first_and_is_no_stall(self, bench: Bench) -> None:
        await bench.enqueue("a", max_attempts=1)
        await bench.claim_one(lease=30, heartbeat=10, max_stalled=0)
        await bench.ops.cancel(QUEUE, "a", active=True)
        bench.clock.advance(30)
        (stalled,) = await bench.ops.reap()
        assert (stalled.action, stalled.count) == ("cancelled", 0)
        assert await bench.state("a") == "cancelled"

    @case
    async def test_stale_age_is_patience_with_leases_but_not_with_expiry(self, bench: Bench) -> None:
        await bench.enqueue_all("lease", "expired")
        (first,) = await bench.claim(1, lease=10, heartbeat=3)
        await bench.claim(1, lease=None, heartbeat=None, expire=10)
        bench.clock.advance(10)
        assert [r.id for r in await bench.ops.reap(stale_age=5)] == ["expired"]
        bench.clock.advance(5)
        assert [r.id for r in await bench.ops.reap(stale_age=5)] == [first.lease.id]

    @case
    async def test_the_most_overdue_first_and_no_more_than_asked_for(self, bench: Bench) -> None:
        await bench.enqueue_all("a", "b", "c")
        for _ in range(3):
            await bench.claim(1, lease=30, heartbeat=10)
            bench.clock.advance(1)
        bench.clock.advance(60)
        assert [r.id for r in await bench.ops.reap(limit=2)] == ["a", "b"]
        assert [r.id for r in await bench.ops.reap(limit=2)] == ["c"]

    @case
    async def test_a_stalled_job_waits_for_its_retry_delay(self, bench: Bench) -> None:
        await bench.enqueue("a", retry_delay=7)
        await bench.claim_one(lease=30, heartbeat=10)
        bench.clock.advance(30)
        await bench.ops.reap()
        bench.clock.advance(6)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert len(await bench.claim()) == 1

    @case
    async def test_any_number_of_reapers_take_each_job_once(self, bench: Bench) -> None:
        ids = [f"{n:03}" for n in range(100)]
        await bench.enqueue_all(*ids)
        await bench.claim(100, lease=10, heartbeat=3)
        bench.clock.advance(10)
        taken = await bench.together(8, lambda _: self._reap_until_empty(bench))
        assert sorted(job_id for ids_ in taken for job_id in ids_) == ids

    async def _reap_until_empty(self, bench: Bench) -> list[str]:
        taken: list[str] = []
        while found := await bench.ops.reap(limit=9):
            taken += [r.id for r in found]
        return taken

    @case
    async def test_completing_races_with_reaping_and_one_of_them_wins(self, bench: Bench) -> None:
        for round_ in range(10):
            await bench.enqueue(f"a{round_}", max_attempts=1)
            job = await bench.claim_one(lease=10, heartbeat=3)
            bench.clock.advance(10)

            async def race(n: int, job: Any = job) -> str:
                if n % 2:
                    return await bench.settle(job, Completed(b"1")) or "lost"
                return "".join(r.action for r in await bench.ops.reap()) or "nothing"

            outcomes = await bench.together(4, race)
            assert ("completed" in outcomes) != ("failed" in outcomes)
            assert await bench.state(job.lease.id) in outcomes

    @case
    async def test_the_next_deadline_is_the_earliest(self, bench: Bench) -> None:
        assert await bench.ops.next_deadline() is None
        await bench.enqueue_all("a", "b")
        await bench.claim(1, lease=30, heartbeat=10)
        await bench.claim(1, lease=20, heartbeat=10)
        assert await bench.ops.next_deadline() == pytest.approx(20)
        bench.clock.advance(25)
        assert await bench.ops.next_deadline() == pytest.approx(-5)


class Managing(_Cases):
    """Cancel, retry, delete, look up, count, prune."""

    @case
    @pytest.mark.parametrize("active", [False, True])
    async def test_a_waiting_job_is_cancelled_and_never_runs(self, bench: Bench, active: bool) -> None:  # noqa: FBT001
        await bench.enqueue("a")
        assert (await bench.ops.cancel(QUEUE, "a", active=active)).status == "cancelled"
        assert await bench.state("a") == "cancelled"
        assert await bench.claim() == []

    @case
    async def test_a_failing_job_is_cancelled(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=10))
        assert (await bench.ops.cancel(QUEUE, "a")).status == "cancelled"
        bench.clock.advance(10)
        assert await bench.claim() == []

    @case
    async def test_cancelling_what_is_not_there_says_so(self, bench: Bench) -> None:
        assert (await bench.ops.cancel(QUEUE, "nobody")).status == "not_found"

    @case
    async def test_cancelling_what_is_over_says_how_it_ended(self, bench: Bench) -> None:
        await bench.complete("done")
        await bench.fail("broken")
        assert (await bench.ops.cancel(QUEUE, "done")).status == "completed"
        assert (await bench.ops.cancel(QUEUE, "broken")).status == "failed"

    @case
    async def test_a_running_job_is_left_alone(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        assert (await bench.ops.cancel(QUEUE, "a")).status == "processing"
        assert await bench.settle(job, Completed(b"1")) == "completed"

    @case
    @pytest.mark.parametrize("outcome", [Completed(b"1"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1), Cancelled()])
    async def test_a_running_job_asked_to_end_ends_as_cancelled(self, bench: Bench, outcome: Any) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        assert (await bench.ops.cancel(QUEUE, "a", active=True)).status == "processing"
        assert await bench.settle(job, outcome) == "cancelled"
        status = await bench.status("a")
        assert (status.state, status.result, status.error) == ("cancelled", None, None)

    @case
    async def test_cancel_and_claim_race_and_one_of_them_wins(self, bench: Bench) -> None:
        for round_ in range(10):
            job_id = f"a{round_}"
            await bench.enqueue(job_id)

            async def race(n: int, job_id: str = job_id) -> str:
                if n % 2:
                    return (await bench.ops.cancel(QUEUE, job_id)).status
                return "claimed" if await bench.claim() else "nothing"

            outcomes = await bench.together(4, race)
            assert ("cancelled" in outcomes) != ("claimed" in outcomes)

    @case
    async def test_retry_gives_a_failed_job_all_its_attempts_again(self, bench: Bench) -> None:
        old = await bench.fail("a", max_attempts=1)
        status = await bench.ops.retry(QUEUE, "a")
        assert status is not None
        assert (status.state, status.attempts, status.error) == ("queued", 0, None)
        job = await bench.claim_one()
        assert (job.attempts, job.max_attempts) == (1, 1)
        assert job.lease.number > old.lease.number
        assert await bench.settle(old, Completed(b"late")) is None

    @case
    async def test_retry_brings_a_cancelled_job_back(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.ops.cancel(QUEUE, "a")
        status = await bench.ops.retry(QUEUE, "a")
        assert status is not None
        assert status.state == "queued"
        assert len(await bench.claim()) == 1

    @case
    async def test_retry_leaves_other_jobs_as_they_are(self, bench: Bench) -> None:
        await bench.complete("done")
        status = await bench.ops.retry(QUEUE, "done")
        assert status is not None
        assert status.state == "completed"
        assert await bench.ops.retry(QUEUE, "nobody") is None
        assert await bench.claim() == []

    @case
    async def test_a_deleted_job_is_forgotten(self, bench: Bench) -> None:
        await bench.complete("done")
        await bench.enqueue("waiting")
        assert await bench.ops.delete(QUEUE, ["done", "waiting", "nobody"]) == 2
        assert await bench.ops.get(QUEUE, ["done", "waiting"]) == {}
        assert await bench.claim() == []
        assert (await bench.enqueue("done")).status == "queued"

    @case
    async def test_a_running_job_is_not_deleted(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        assert await bench.ops.delete(QUEUE, ["a"]) == 0
        assert await bench.settle(job, Completed(b"1")) == "completed"

    @case
    async def test_unknown_ids_are_not_in_the_answer(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert set(await bench.ops.get(QUEUE, ["a", "b"])) == {"a"}
        assert await bench.ops.get("nobody's", ["a"]) == {}

    @case
    async def test_jobs_are_found_by_state_queue_and_key(self, bench: Bench) -> None:
        await bench.complete("done")
        await bench.enqueue("a", singleton_key="k")
        await bench.enqueue("b", queue="other")
        assert await self._found(bench, JobFilter(queue=QUEUE)) == ["done", "a"]
        assert await self._found(bench, JobFilter(state="queued")) == ["a", "b"]
        assert await self._found(bench, JobFilter(singleton_key="k")) == ["a"]
        assert await self._found(bench, JobFilter(queue="nobody's")) == []

    @case
    async def test_jobs_are_found_by_age(self, bench: Bench) -> None:
        await bench.enqueue("old")
        bench.clock.advance(10)
        await bench.enqueue("new")
        border = (await bench.status("new")).created_at
        assert await self._found(bench, JobFilter(created_before=border)) == ["old"]
        assert await self._found(bench, JobFilter(created_after=border)) == ["new"]

    @case
    async def test_jobs_are_found_page_by_page(self, bench: Bench) -> None:
        ids = [f"{n}" for n in range(7)]
        await bench.enqueue_all(*ids)
        found: list[str] = []
        after: int | None = 0
        while after is not None:
            page, after = await bench.ops.find(JobFilter(after=after, limit=3))
            found += [status.id for status in page]
        assert found == ids

    async def _found(self, bench: Bench, wanted: JobFilter) -> list[str]:
        page, following = await bench.ops.find(wanted)
        assert following is None
        return [status.id for status in page]

    @case
    async def test_an_id_that_was_used_again_is_one_job(self, bench: Bench) -> None:
        await bench.fail("a")
        await bench.enqueue("a")
        assert await self._found(bench, JobFilter()) == ["a"]
        stats = await bench.ops.stats(QUEUE)
        assert (stats.total, stats.failed, stats.queued) == (1, 0, 1)

    @case
    async def test_stats_count_every_state_once(self, bench: Bench) -> None:
        await bench.complete("completed")
        await bench.fail("failed")
        await bench.enqueue("failing")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=100))
        await bench.enqueue("cancelled")
        await bench.ops.cancel(QUEUE, "cancelled")
        await bench.enqueue("processing")
        await bench.claim_one()
        await bench.enqueue("deferred", delay=100)
        await bench.enqueue("ready")
        bench.clock.advance(30)
        stats = await bench.ops.stats(QUEUE)
        assert (stats.name, stats.total) == (QUEUE, 7)
        assert (stats.queued, stats.ready, stats.deferred) == (2, 1, 1)
        assert (stats.processing, stats.failing, stats.completed) == (1, 1, 1)
        assert (stats.failed, stats.cancelled) == (1, 1)
        assert stats.oldest_ready_age == pytest.approx(30)

    @case
    async def test_stats_of_an_unknown_queue_are_zero(self, bench: Bench) -> None:
        stats = await bench.ops.stats("nobody's")
        assert (stats.total, stats.oldest_ready_age) == (0, None)

    @case
    async def test_workers_are_seen_until_they_fall_silent(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.claim(worker="ann")
        await bench.claim(worker="bob")
        assert [(w.id, w.queues, w.running) for w in await bench.ops.workers()] == [
            ("ann", (QUEUE,), 1),
            ("bob", (QUEUE,), 0),
        ]
        bench.clock.advance(50)
        await bench.ops.heartbeat([], worker="ann")
        bench.clock.advance(50)
        assert [(w.id, w.queues) for w in await bench.ops.workers()] == [("ann", (QUEUE,))]

    @case
    async def test_records_are_pruned_when_their_time_has_passed(self, bench: Bench) -> None:
        await bench.complete("default")
        await bench.complete("short", delete_after_seconds=10)
        await bench.complete("kept", delete_after_seconds=0)
        assert await bench.ops.prune() == 0
        bench.clock.advance(10)
        assert await bench.ops.prune() == 1
        assert set(await bench.ops.get(QUEUE, ["default", "short", "kept"])) == {"default", "kept"}
        bench.clock.advance(7 * 86400)
        assert await bench.ops.prune() == 1
        bench.clock.advance(1000 * 86400)
        assert await bench.ops.prune() == 0
        assert set(await bench.ops.get(QUEUE, ["default", "short", "kept"])) == {"kept"}

    @case
    async def test_jobs_that_wait_too_long_are_pruned_but_not_while_they_run(self, bench: Bench) -> None:
        await bench.enqueue("running", retention_seconds=10)
        await bench.claim_one(lease=None, heartbeat=None, expire=None)
        await bench.enqueue("short", retention_seconds=10)
        await bench.enqueue("default")
        bench.clock.advance(10)
        assert await bench.ops.prune() == 1
        bench.clock.advance(14 * 86400)
        assert await bench.ops.prune() == 1
        assert set(await bench.ops.get(QUEUE, ["running", "short", "default"])) == {"running"}

    @case
    async def test_pruning_is_done_in_batches_and_frees_the_id(self, bench: Bench) -> None:
        for n in range(5):
            await bench.complete(str(n), delete_after_seconds=1, result_ttl=100)
        bench.clock.advance(1)
        assert [await bench.ops.prune(limit=2) for _ in range(4)] == [2, 2, 1, 0]
        assert (await bench.enqueue("0")).status == "queued"


class Hearing(_Cases):
    """Events, wake-ups, leaders, and the end."""

    @case
    async def test_a_subscriber_hears_a_jobs_life(self, bench: Bench) -> None:
        heard = await bench.ops.subscribe(QUEUE)
        await bench.enqueue("a", max_attempts=5)
        await bench.settle(await bench.claim_one(), Failing(BOOM))
        await bench.settle(await bench.claim_one(), Released())
        await bench.claim_one(lease=10, heartbeat=3)
        bench.clock.advance(10)
        await bench.ops.reap()
        await bench.settle(await bench.claim_one(), Completed(b"1"))
        await bench.enqueue("b")
        await bench.ops.cancel(QUEUE, "b")
        events = await self._hear(heard, 13)
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
        await heard.close()

    async def _hear(self, heard: Any, at_most: int) -> list[Any]:
        """Take events until the last thing that was done has been heard."""
        events: list[Any] = []
        while len(events) < at_most and not (events and events[-1].name == "cancelled"):
            more = await heard.next(10)
            assert more, f"heard only {[e.name for e in events]}"
            events += more
        return events

    @case
    async def test_a_subscriber_hears_its_queue_or_all(self, bench: Bench) -> None:
        one = await bench.ops.subscribe("one")
        everything = await bench.ops.subscribe()
        await bench.enqueue("a", queue="two")
        await bench.enqueue("b", queue="one")
        await bench.ops.cancel("one", "b")
        assert [(e.queue, e.id) for e in await self._hear(one, 2)] == [("one", "b")] * 2
        assert [e.queue for e in await self._hear(everything, 3)] == ["two", "one", "one"]
        await one.close()
        await everything.close()

    @case
    async def test_a_big_batch_is_heard_whole(self, bench: Bench) -> None:
        heard = await bench.ops.subscribe(QUEUE)
        ids = [f"{n:04}-{'é' * 100}" for n in range(500)]
        await bench.enqueue_all(*ids)
        events: list[Any] = []
        while len(events) < len(ids):
            events += await heard.next(10)
        assert sorted(e.id for e in events) == ids
        await heard.close()

    @case
    async def test_silence_is_an_empty_list(self, bench: Bench) -> None:
        heard = await bench.ops.subscribe(QUEUE)
        assert await heard.next(0.01) == []
        await heard.close()

    @case
    async def test_a_closed_subscription_hears_no_more(self, bench: Bench) -> None:
        heard = await bench.ops.subscribe(QUEUE)
        await heard.close()
        await heard.close()
        await bench.enqueue("a")
        with pytest.raises(StorageError):
            await heard.next(10)

    @case
    async def test_sleep_ends_at_once_when_there_is_work(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert await bench.ops.wait_for_work([QUEUE], 60)

    @case
    async def test_sleep_ends_when_nothing_comes(self, bench: Bench) -> None:
        await bench.enqueue("a", queue="another")
        assert not await bench.ops.wait_for_work([QUEUE], 0.01)

    @case
    async def test_sleepers_are_woken_by_an_enqueue(self, bench: Bench) -> None:
        async def sleep_or_enqueue(n: int) -> bool:
            if n:
                return await bench.ops.wait_for_work(["quiet", QUEUE], 60)
            await bench.enqueue("a")
            return True

        assert await bench.together(4, sleep_or_enqueue) == [True] * 4

    @case
    async def test_sleepers_are_woken_by_a_retry(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()

        async def sleep_or_settle(n: int) -> bool:
            if n:
                return await bench.ops.wait_for_work([QUEUE], 60)
            return await bench.settle(job, Failing(BOOM)) == "failing"

        assert await bench.together(3, sleep_or_settle) == [True] * 3

    @case
    async def test_one_candidate_leads(self, bench: Bench) -> None:
        if not bench.storage.promises.leader_election:
            with pytest.raises(UnsupportedError):
                await bench.ops.elect("reaper", "ann", ttl=30)
            return
        assert await bench.ops.elect("reaper", "ann", ttl=30)
        assert not await bench.ops.elect("reaper", "bob", ttl=30)
        assert await bench.ops.elect("reaper", "ann", ttl=30)
        assert await bench.ops.elect("pruner", "bob", ttl=30)
        await bench.ops.resign("reaper", "bob")
        assert not await bench.ops.elect("reaper", "bob", ttl=30)
        await bench.ops.resign("reaper", "ann")
        assert await bench.ops.elect("reaper", "bob", ttl=30)

    @case
    async def test_of_ten_candidates_one_leads(self, bench: Bench) -> None:
        if bench.storage.promises.leader_election:
            elected = await bench.together(10, lambda n: bench.ops.elect("reaper", str(n), ttl=30))
            assert sum(elected) == 1

    @case
    async def test_a_closed_storage_says_so(self, bench: Bench) -> None:
        await bench.enqueue("a")
        heard = await bench.ops.subscribe()
        await bench.ops.close()
        bench.storage.close()
        bench.storage.close()
        with pytest.raises(StorageError, match="closed"):
            await bench.enqueue("b")
        with pytest.raises(StorageError, match="closed"):
            await heard.next(10)


class StorageConformance(Enqueueing, Claiming, Settling, Leasing, Reaping, Managing, Hearing):
    """Everything that a storage must do."""
