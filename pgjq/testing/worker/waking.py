"""Worker suite: what wakes a sleeping worker, and definitions that change while it runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.lease import LeasePolicy
from pgjq.outcome import Discard
from pgjq.reaper import Reaper
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE, echo
from pgjq.testing.worker.recorder import Gate, Recorder, until_aborted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.testing.worker.harness import Harness

DEAD = "dead"


def discard(_job: Any) -> None:
    """Handle a job by failing it permanently."""
    raise Discard("no")


class Waking(WorkerCases):
    """What wakes a sleeping worker."""

    @pytest.mark.parametrize("burst", ["one call", "many calls"])
    @case
    async def test_a_burst_wakes_as_many_workers_as_it_has_work_for(self, harness: Harness, burst: str) -> None:
        """All jobs of the burst must be running before any of them can end."""
        together = threading.Barrier(6)

        def meet(_job: Any) -> None:
            together.wait(LIMIT)

        other = harness.reopen()
        ids = [f"{n}" for n in range(6)]
        for storage in (harness.storage, harness.storage, other):
            await harness.start(harness.queue(meet, storage=storage, concurrency=2))
        await harness.let_workers_sleep()
        producer = harness.queue(storage=other)
        if burst == "one call":
            await harness.call(producer.enqueue_many, [(job_id, None) for job_id in ids])
        else:
            for job_id in ids:
                await harness.call(producer.enqueue, job_id, None)
        await harness.until_all(producer, ids)
        assert not together.broken

    @case
    async def test_retries_of_ended_jobs_wake_a_sleeping_worker(self, harness: Harness) -> None:
        def fail_once(job: Any) -> None:
            if handler.ids.count(job.id) == 1 and job.id != "cancelled":
                raise Discard("no")

        handler = Recorder(fail_once)
        queue, client = harness.queue(handler), harness.client()
        await harness.call(queue.enqueue, "cancelled", None)
        await harness.call(queue.cancel, "cancelled")
        async with harness.started(queue):
            for job_id in "abcd":
                await harness.call(queue.enqueue, job_id, None)
            await harness.until_all(queue, "abcd", "failed")
            for job_id in ("a", "cancelled"):
                await harness.let_workers_sleep()
                await harness.call(client.retry, QUEUE, job_id)
                await harness.until_state(queue, job_id, "completed")
            await harness.let_workers_sleep()
            assert await harness.call(client.retry_many, QUEUE) == 3
            await harness.until_all(queue, "bcd")

    @case
    async def test_jobs_that_a_stopping_worker_releases_wake_another(self, harness: Harness) -> None:
        stopping, other = harness.queue(until_aborted), harness.queue(echo, storage=harness.reopen())
        await harness.start(stopping)
        await harness.call(stopping.enqueue, "a", 1)
        await harness.until_state(stopping, "a", "processing")
        async with harness.started(other):
            await harness.let_workers_sleep()
            await harness.stop(stopping, grace=0)
            status = await harness.until_state(other, "a", "completed")
        assert (status.result, status.attempts) == (1, 1)

    @case
    async def test_jobs_claimed_ahead_by_a_stopping_worker_wake_another_at_once(self, harness: Harness) -> None:
        """The stopping worker has a slow job to finish; its prefetched jobs do not wait for it."""
        gate = Gate("slow")
        stopping, other = harness.queue(gate), harness.queue(echo, storage=harness.reopen())
        quick = [f"quick{n}" for n in range(5)]
        await harness.start(stopping)
        await harness.call(stopping.enqueue_many, [(f"{n}", None) for n in range(20)])
        await harness.until_all(stopping, [f"{n}" for n in range(20)])
        await harness.call(stopping.enqueue_many, [("slow", None), *((job_id, 1) for job_id in quick)])
        await harness.until_state(stopping, "slow", "processing")

        async def stop_or_watch(n: int) -> None:
            if n == 0:
                return await harness.stop(stopping, grace=LIMIT)
            try:
                await harness.until_all(other, quick)
                assert (await harness.call(other.get_status, "slow")).state == "processing"
            finally:
                gate.open()

        async with harness.started(other):
            await harness.let_workers_sleep()
            await harness.together(2, stop_or_watch)
            status = await harness.call(other.get_status, quick[0])
        assert (status.result, status.attempts) == (1, 1)
        assert (await harness.call(other.get_status, "slow")).state == "completed"

    @pytest.mark.parametrize("reaper", ["worker", "reaper"])
    @case
    async def test_a_stalled_job_wakes_a_sleeping_worker_when_it_is_reaped(self, harness: Harness, reaper: str) -> None:
        stalls = LeasePolicy(lease=0.6, heartbeat=None, reap_interval=0)
        reaps = LeasePolicy(reap_interval=0.1 if reaper == "worker" else 0)
        gate = Gate()
        stalling = harness.queue(gate, lease_policy=stalls)
        other = harness.queue(echo, lease_policy=reaps, storage=harness.reopen())
        await harness.start(stalling)
        await harness.call(stalling.enqueue, "a", 1)
        await harness.until_state(stalling, "a", "processing")
        alone = Reaper(storage=harness.reopen())
        async with harness.started(other):
            if reaper == "reaper":
                await harness.in_thread(alone.start)
            status = await harness.until_state(other, "a", "completed")
            await harness.in_thread(alone.stop)
            gate.open()
        assert (status.result, status.attempts) == (1, 2), status

    @pytest.mark.parametrize("asleep", ["before the enqueue", "after the enqueue"])
    @case
    @requires("transactions")
    async def test_the_commit_of_the_callers_transaction_wakes_a_sleeping_worker(
        self, harness: Harness, connect: Callable[[], Any], asleep: str
    ) -> None:
        handler = Recorder()
        queue = harness.queue(handler)
        connection = await harness.call(connect)
        try:
            if asleep == "before the enqueue":
                await harness.start(queue)
                await harness.let_workers_sleep()
            await harness.call(queue.enqueue, "undone", 1, connection=connection)
            await harness.call(connection.rollback)
            await harness.call(queue.enqueue, "a", 1, connection=connection)
            if asleep == "after the enqueue":
                await harness.start(queue)
                await harness.let_workers_sleep()
            assert await harness.call(queue.get_status, "a") is None
            await harness.call(connection.commit)
            await harness.until_state(queue, "a", "completed")
        finally:
            await harness.call(connection.close)
        assert handler.ids == ["a"]


@requires("definitions")
class Redefining(WorkerCases):
    """Wake-ups of a sleeping worker with definitions, and definitions that change meanwhile."""

    @case
    async def test_a_paused_queue_rests_and_wakes_its_worker_when_it_is_resumed(self, harness: Harness) -> None:
        gate = Gate("running")
        queue, client = harness.queue(gate, concurrency=2), harness.client(harness.reopen())
        async with harness.started(queue):
            await harness.call(queue.enqueue, "running", 1)
            await harness.until_state(queue, "running", "processing")
            await harness.call(client.pause_queue, QUEUE)
            await harness.call(queue.enqueue_many, [("a", 1), ("b", 1)])
            await harness.call(queue.enqueue, "c", 1, delay=0.05)
            gate.open()
            await harness.until_state(queue, "running", "completed")
            await harness.let_workers_sleep()
            await harness.sleep(0.1)
            assert (await harness.call(client.get_queue_stats, QUEUE)).queued == 3
            await harness.call(client.resume_queue, QUEUE)
            await harness.until_all(queue, "abc")

    @case
    async def test_a_dead_letter_wakes_the_worker_of_its_queue_and_a_redrive_the_first_one(
        self, harness: Harness
    ) -> None:
        def fail_once(job: Any) -> str:
            if len(handler.runs) == 1:
                raise Discard("no")
            return job.payload

        handler = Recorder(fail_once)
        storage = harness.reopen()
        queue, client = harness.queue(handler), harness.client(storage)
        await harness.call(client.create_queue, DEAD)
        await harness.call(client.create_queue, QUEUE, dead_letter=DEAD)
        async with harness.started(queue):
            await harness.let_workers_sleep()
            await harness.call(queue.enqueue, "a", "x")
            await harness.until(lambda: _total(harness, client, DEAD, 1), "the dead letter arrives")
            await harness.let_workers_sleep()
            assert await harness.call(client.redrive, DEAD) == 1
            await harness.until(lambda: len(handler.runs) == 2, "the job runs again")
            await harness.until(lambda: _total(harness, client, DEAD, 0), "the dead letter is gone")
        letters = Recorder()
        failing = harness.queue(discard, name="other")
        async with harness.started(failing), harness.started(harness.queue(letters, name=DEAD, storage=storage)):
            await harness.let_workers_sleep()
            await harness.call(failing.enqueue, "b", "y", dead_letter=DEAD)
            await harness.until(lambda: len(letters.runs) == 1, "the worker of the dead letter queue runs it")

    @case
    async def test_a_changed_definition_holds_for_jobs_to_come_under_a_running_worker(self, harness: Harness) -> None:
        handler = Recorder(discard)
        queue, client = harness.queue(_fail), harness.client(harness.reopen())
        await harness.call(client.create_queue, QUEUE, retry_limit=0)
        await harness.call(client.create_queue, DEAD)
        async with harness.started(queue), harness.started(harness.queue(handler, name=DEAD)):
            await harness.call(queue.enqueue, "before", None, delay=0.3)
            await harness.call(queue.enqueue, "one", None)
            assert (await harness.until_state(queue, "one", "failed")).attempts == 1
            await harness.call(client.update_queue, QUEUE, retry_limit=1, retry_delay=0.05, dead_letter=DEAD)
            await harness.call(queue.enqueue, "two", None)
            assert (await harness.until_state(queue, "two", "failed")).attempts == 2
            await harness.until(lambda: len(handler.runs) == 1, "the dead letter runs")
            await harness.call(client.update_queue, QUEUE, retry_limit=None, dead_letter=None)
            await harness.call(queue.enqueue, "three", None)
            assert (await harness.until_state(queue, "three", "failed")).attempts == 3
            assert (await harness.until_state(queue, "before", "failed")).attempts == 1
        assert len(handler.runs) == 1

    @case
    async def test_changed_deadlines_hold_for_jobs_to_come_under_a_running_worker(self, harness: Harness) -> None:
        gate = Gate()
        queue, client = harness.queue(gate, concurrency=3, visibility_timeout=300), harness.client()
        await harness.call(client.create_queue, QUEUE)
        async with harness.started(queue):
            for job_id, options, seconds in (
                ("default", {}, 300),
                ("heartbeat", {"heartbeat_seconds": 100}, 100),
                ("expire", {"expire_in_seconds": 50}, 50),
            ):
                await harness.call(client.update_queue, QUEUE, **options)
                await harness.call(queue.enqueue, job_id, None)
                status = await harness.until_state(queue, job_id, "processing")
                assert round((status.locked_until - status.started_at).total_seconds()) == seconds
            gate.open()

    @case
    async def test_a_queue_that_is_deleted_and_created_again_is_served_by_its_running_worker(
        self, harness: Harness
    ) -> None:
        gate = Gate("running")
        queue, client = harness.queue(gate, concurrency=2), harness.client(harness.reopen())
        async with harness.started(queue):
            await harness.call(queue.enqueue, "running", 1)
            await harness.until_state(queue, "running", "processing")
            for n, options in enumerate(({}, {"partition": True, "policy": "singleton"}, None)):
                await harness.call(client.delete_queue, QUEUE)
                if options is not None:
                    await harness.call(client.create_queue, QUEUE, **options)
                await harness.let_workers_sleep()
                assert await harness.call(queue.get_status, "running") is None
                await harness.call(client.enqueue, QUEUE, f"ready{n}", 1)
                await harness.call(queue.enqueue, f"delayed{n}", 1, delay=0.05)
                await harness.until_all(queue, [f"ready{n}", f"delayed{n}"])
            gate.open()


def _fail(_job: Any) -> None:
    raise ValueError("no")


async def _total(harness: Harness, client: Any, queue: str, count: int) -> bool:
    return (await harness.call(client.get_queue_stats, queue)).total == count
