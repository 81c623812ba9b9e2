"""Worker suite: policies that limit the jobs of a key, with workers on two storage objects."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.job import NewJob
from pgjq.lease import LeasePolicy
from pgjq.outcome import Discard, Retry
from pgjq.policy import POLICIES, PolicyName
from pgjq.reaper import Reaper
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE
from pgjq.testing.worker.recorder import Gate, Recorder, key_of, until_aborted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from pgjq.testing.worker.harness import Harness

SHORT_LEASE = LeasePolicy(lease=0.6, heartbeat=None, reap_interval=0)
NO_REAPER = LeasePolicy(reap_interval=0)
KEYS = ("k", "l", "m")
EACH = 6
# Policies under which at most one job of a key runs at a time.
ONE_RUN: tuple[PolicyName, ...] = ("singleton", "stately", "exclusive", "key_strict_fifo")


def keyed(*job_ids: str, **options: Any) -> list[NewJob]:
    """Create jobs whose ids contain their keys."""
    return [NewJob(job_id, 1, singleton_key=key_of(job_id), **options) for job_id in job_ids]


def failing_first(job_id: str, error: Callable[[], Exception]) -> Recorder:
    """Return a handler that fails the first run of a job."""

    def body(job: Any) -> None:
        if job.id == job_id and recorder.ids.count(job_id) == 1:
            raise error()

    recorder = Recorder(body)
    return recorder


@asynccontextmanager
async def two_workers(harness: Harness, policy: PolicyName, handler: Any, **options: Any) -> AsyncGenerator[Any]:
    """Define a queue with sleeping workers on two storage objects; yield a queue for producing."""
    await harness.call(harness.client().create_queue, QUEUE, policy=policy)
    queue = harness.queue(handler, **options)
    async with harness.started(queue), harness.started(harness.queue(handler, storage=harness.reopen(), **options)):
        await harness.let_workers_sleep()
        yield queue


@requires("definitions")
class BlockedKeys(WorkerCases):
    """Policies that limit the jobs of a key, with workers on two storage objects."""

    @pytest.mark.parametrize("policy", POLICIES)
    @case
    async def test_the_limit_of_a_key_holds_at_all_times_and_every_job_ends(
        self, harness: Harness, policy: PolicyName
    ) -> None:
        def body(job: Any) -> None:
            time.sleep(0.002)
            if job.attempts == 1 and job.id.endswith("0") and policy != "stately":
                raise Retry(delay=0.02)

        handler = Recorder(body)
        jobs = keyed(*(f"{key}-{n}" for n in range(EACH) for key in KEYS))
        accepted: list[str] = []
        async with two_workers(harness, policy, handler, concurrency=3) as queue:
            for start in range(0, len(jobs), len(KEYS)):
                results = await harness.call(queue.enqueue_many, jobs[start : start + len(KEYS)])
                accepted += [result.id for result in results if result.status == "queued"]
            await harness.until_all(queue, accepted)
        assert set(handler.ids) == set(accepted)
        assert policy in ("short", "stately", "exclusive") or len(accepted) == len(jobs)
        assert policy not in ONE_RUN or set(handler.most.values()) == {1}
        if policy == "key_strict_fifo":
            assert all(_of(key, handler)[1:] == [f"{key}-{n}" for n in range(EACH)] for key in KEYS)

    @pytest.mark.parametrize(
        ("policy", "ending"),
        [
            *(("singleton", ending) for ending in ("completed", "failed", "released")),
            *(("stately", ending) for ending in ("failed", "released")),
            *(("key_strict_fifo", ending) for ending in ("completed", "released")),
        ],
    )
    @case
    async def test_the_end_of_a_run_wakes_another_worker_for_the_next_of_its_key(
        self, harness: Harness, policy: PolicyName, ending: str
    ) -> None:
        """The worker whose run ends is stopping, so that only the sleeping one can run the next job."""
        gate, handler = Gate(), Recorder()
        await harness.call(harness.client().create_queue, QUEUE, policy=policy)
        first = ending_as(ending, gate)
        stopping, other = harness.queue(first), harness.queue(handler, storage=harness.reopen())
        await harness.start(stopping)
        await harness.call(stopping.enqueue_many, keyed("k-1"))
        await harness.until_state(stopping, "k-1", "processing")
        await harness.call(stopping.enqueue_many, keyed("k-2"))

        async def stop_or_open(n: int) -> None:
            if n == 0:
                await harness.stop(stopping, grace=0 if ending == "released" else LIMIT)
            else:
                await harness.sleep(0.05)
                gate.open()

        async with harness.started(other):
            await harness.let_workers_sleep()
            assert handler.ids == []
            await harness.together(2, stop_or_open)
            await harness.until_state(other, "k-2", "completed")
            await harness.until_state(other, "k-1", "failed" if ending == "failed" else "completed")
        assert sorted(handler.ids) == (["k-1", "k-2"] if ending == "released" else ["k-2"])

    @case
    async def test_a_short_queue_takes_the_next_job_of_a_key_once_one_runs(self, harness: Harness) -> None:
        gate = Gate()
        handler = Recorder(gate)
        async with two_workers(harness, "short", handler) as queue:
            for job_id in ("k-1", "k-2"):
                assert await _enqueue(harness, queue, job_id) == "queued"
                await harness.until_state(queue, job_id, "processing")
            assert await _enqueue(harness, queue, "k-3") == "queued"
            assert await _enqueue(harness, queue, "k-4") == "duplicate"
            await harness.until(lambda: handler.most["k"] == 2, "both handlers run")
            gate.open()
            await harness.until_all(queue, ["k-1", "k-2", "k-3"])
        assert "k-4" not in handler.ids

    @case
    async def test_an_exclusive_queue_takes_the_next_job_of_a_key_once_the_first_has_ended(
        self, harness: Harness
    ) -> None:
        gate = Gate("k-1")
        handler, client = Recorder(lambda job: _retry_first(gate, job)), harness.client()
        async with two_workers(harness, "exclusive", handler) as queue:
            assert await _enqueue(harness, queue, "k-1") == "queued"
            await harness.until_state(queue, "k-1", "processing")
            assert await _enqueue(harness, queue, "k-2") == "duplicate"
            gate.open()
            await harness.until_state(queue, "k-1", "failing")
            assert await _enqueue(harness, queue, "k-2") == "duplicate"
            await harness.call(client.cancel, QUEUE, "k-1")
            for job_id in ("k-2", "k-3"):
                assert await _enqueue(harness, queue, job_id) == "queued"
                await harness.until_state(queue, job_id, "completed")
        assert handler.ids == ["k-1", "k-2", "k-3"]

    @case
    async def test_a_stately_job_fails_for_good_while_another_of_its_key_is_failing(self, harness: Harness) -> None:
        def body(job: Any) -> None:
            if job.attempts == 1:
                raise Retry(delay=60 if job.id == "k-1" else 0)

        handler, client = Recorder(body), harness.client()
        async with two_workers(harness, "stately", handler) as queue:
            assert await _enqueue(harness, queue, "k-1") == "queued"
            await harness.until_state(queue, "k-1", "failing")
            assert await _enqueue(harness, queue, "k-2") == "queued"
            await harness.until_state(queue, "k-2", "failed")
            assert await harness.call(client.delete_job, QUEUE, "k-1")
            assert await _enqueue(harness, queue, "k-3") == "queued"
            await harness.until_state(queue, "k-3", "completed")

    @case
    async def test_in_strict_order_a_failing_job_holds_its_key_until_it_runs_again(self, harness: Harness) -> None:
        handler = failing_first("k-1", lambda: Retry(delay=0.2))
        async with two_workers(harness, "key_strict_fifo", handler, concurrency=2) as queue:
            await harness.call(queue.enqueue_many, keyed("k-1", "k-2", "l-1"))
            await harness.call(queue.enqueue_many, keyed("k-3", priority=9))
            await harness.until_all(queue, ["l-1", "k-1", "k-2", "k-3"])
        assert _of("k", handler) == ["k-1", "k-1", "k-2", "k-3"]

    @pytest.mark.parametrize("unblock", ["retry", "delete_job"])
    @case
    async def test_in_strict_order_a_failed_job_blocks_its_key_until_it_is_retried_or_deleted(
        self, harness: Harness, unblock: str
    ) -> None:
        handler = failing_first("k-1", lambda: Discard("no"))
        client = harness.client()
        async with two_workers(harness, "key_strict_fifo", handler) as queue:
            await harness.call(queue.enqueue_many, keyed("k-1", "k-2", "k-3", "l-1"))
            await harness.until_all(queue, ["k-1"], "failed")
            await harness.until_state(queue, "l-1", "completed")
            assert await harness.call(client.get_blocked_keys, QUEUE) == ["k"]
            assert (await harness.call(queue.cancel, "k-2")).status == "cancelled"
            await harness.let_workers_sleep()
            assert _of("k", handler) == ["k-1"]
            assert await _enqueue(harness, queue, "k-1") == "duplicate"
            await harness.call(getattr(client, unblock), QUEUE, "k-1")
            await harness.until_state(queue, "k-3", "completed")
        assert _of("k", handler) == (["k-1", "k-1", "k-3"] if unblock == "retry" else ["k-1", "k-3"])

    @pytest.mark.parametrize("ending", ["cancel", "delete_job", "due"])
    @case
    async def test_in_strict_order_a_delayed_job_holds_its_key_until_it_is_due_or_withdrawn(
        self, harness: Harness, ending: str
    ) -> None:
        handler = Recorder()
        client = harness.client()
        async with two_workers(harness, "key_strict_fifo", handler, concurrency=2) as queue:
            await harness.call(queue.enqueue_many, keyed("k-1", delay=0.2 if ending == "due" else 60))
            await harness.call(queue.enqueue_many, keyed("k-2", "l-1"))
            await harness.until_state(queue, "l-1", "completed")
            if ending != "due":
                await harness.let_workers_sleep()
                await harness.call(getattr(client, ending), QUEUE, "k-1")
            await harness.until_state(queue, "k-2", "completed")
        assert _of("k", handler) == (["k-1", "k-2"] if ending == "due" else ["k-2"])

    @pytest.mark.parametrize("policy", ["singleton", "key_strict_fifo"])
    @case
    async def test_a_stalled_run_holds_its_key_until_it_is_reaped(self, harness: Harness, policy: PolicyName) -> None:
        gate = Gate()
        stalling = harness.queue(gate, lease_policy=SHORT_LEASE)
        handler, reaper = Recorder(), Reaper(storage=harness.storage)
        await harness.call(harness.client().create_queue, QUEUE, policy=policy)
        await harness.start(stalling)
        await harness.call(stalling.enqueue_many, keyed("k-1", "k-2"))
        await harness.until_state(stalling, "k-1", "processing")
        async with harness.started(harness.queue(handler, storage=harness.reopen(), lease_policy=NO_REAPER)) as other:
            await harness.in_thread(reaper.start)
            await harness.until_all(other, ["k-1", "k-2"])
            await harness.in_thread(reaper.stop)
            gate.open()
        assert handler.ids == ["k-1", "k-2"]
        assert handler.most["k"] == 1


async def _enqueue(harness: Harness, queue: Any, job_id: str) -> str:
    return (await harness.call(queue.enqueue, job_id, 1, singleton_key=key_of(job_id))).status


def ending_as(ending: str, gate: Gate) -> Callable[[Any], None]:
    """Make a handler that waits for the gate, or to be aborted; "failed" then fails for good."""

    def handler(job: Any) -> None:
        (until_aborted if ending == "released" else gate)(job)
        if ending == "failed":
            raise Discard("no")

    return handler


def _retry_first(gate: Gate, job: Any) -> None:
    gate(job)
    if job.id == "k-1":
        raise Retry(delay=60)


def _of(key: str, handler: Recorder) -> list[str]:
    return [job_id for job_id in handler.ids if key_of(job_id) == key]
