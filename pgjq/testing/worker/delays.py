"""Worker suite: jobs that become due while the worker sleeps."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgjq.job import NewJob
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import QUEUE, echo
from pgjq.testing.worker.recorder import Recorder

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness

SOON, LATER, MUCH_LATER = 0.1, 0.2, 60.0
# Storages may count in milliseconds.
ROUNDING = timedelta(milliseconds=2)


def in_future(seconds: float) -> datetime:
    """Return the point in time this many seconds from now."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


class Delays(WorkerCases):
    """Jobs that become due while the worker sleeps."""

    @case
    async def test_a_job_with_a_delay_or_a_run_at_wakes_a_sleeping_worker(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        async with harness.started(queue):
            await harness.let_workers_sleep()
            await harness.call(queue.enqueue, "delay", 1, delay=LATER)
            await harness.until_state(queue, "delay", "completed")
            await harness.call(queue.enqueue, "run_at", 1, run_at=in_future(SOON))
            assert (await harness.until_state(queue, "run_at", "completed")).result == 1

    @case
    async def test_a_job_with_a_shorter_delay_runs_before_one_with_a_longer_delay(self, harness: Harness) -> None:
        handler = Recorder()
        queue = harness.queue(handler)
        await harness.call(queue.enqueue, "longest", 1, delay=MUCH_LATER)
        async with harness.started(queue):
            await harness.let_workers_sleep()
            await harness.call(queue.enqueue, "longer", 1, run_at=in_future(MUCH_LATER / 2))
            await harness.call(queue.enqueue, "shorter", 1, delay=SOON)
            await harness.until_state(queue, "shorter", "completed")
            await harness.call(queue.enqueue, "ready", 1)
            await harness.until_state(queue, "ready", "completed")
        assert handler.ids == ["shorter", "ready"]

    @case
    async def test_delayed_jobs_of_each_queue_wake_a_sleeping_worker_of_several(self, harness: Harness) -> None:
        one, two = harness.queue(echo, name="one"), harness.queue(echo, name="two")
        async with harness.started(harness.worker(one, two)):
            await harness.let_workers_sleep()
            await harness.call(one.enqueue, "waits", 1, delay=MUCH_LATER)
            await harness.call(two.enqueue, "a", 1, delay=SOON)
            await harness.until_state(two, "a", "completed")
            await harness.call(one.enqueue, "b", 1, delay=SOON)
            await harness.until_state(one, "b", "completed")
        assert (await harness.call(one.get_status, "waits")).state == "queued"

    @case
    @requires("processes")
    async def test_a_delayed_job_from_another_storage_object_wakes_a_sleeping_worker(self, harness: Harness) -> None:
        queue, producer = harness.queue(echo), harness.queue(storage=harness.reopen())
        async with harness.started(queue):
            await harness.let_workers_sleep()
            await harness.call(producer.enqueue, "later", 1, delay=LATER)
            assert (await harness.until_state(queue, "later", "completed")).result == 1

    @case
    @requires("processes")
    async def test_a_delayed_job_from_another_process_wakes_a_sleeping_worker(self, harness: Harness) -> None:
        script = (
            f"import pgjq\nwith pgjq.Client({harness.source}) as client:\n"
            f"    client.enqueue({QUEUE!r}, 'long', 1, delay=60)\n"
            f"    client.enqueue({QUEUE!r}, 'later', 1, delay=0.2)\n"
        )
        queue = harness.queue(echo)
        async with harness.started(queue):
            await harness.let_workers_sleep()
            await harness.in_thread(subprocess.run, [sys.executable, "-c", script], check=True)
            await harness.until_state(queue, "later", "completed")
        assert (await harness.call(queue.get_status, "long")).state == "queued"

    @case
    async def test_many_delayed_jobs_run_in_order_and_none_before_its_time(self, harness: Harness) -> None:
        handler = Recorder()
        queue = harness.queue(handler)
        ids = [f"{n}" for n in range(20)]
        async with harness.started(queue):
            await harness.let_workers_sleep()
            due = [in_future(LATER + n / 200) for n in range(20)]
            jobs = [NewJob(job_id, None, run_at=run_at) for job_id, run_at in zip(ids, due, strict=True)]
            await harness.call(queue.enqueue_many, jobs)
            await harness.until_all(queue, ids)
            statuses = [await harness.call(queue.get_status, job_id) for job_id in ids]
        assert handler.ids == ids
        assert all(s.started_at >= t - ROUNDING for s, t in zip(statuses, due, strict=True))

    @case
    async def test_a_job_whose_time_has_come_runs_at_once(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        async with harness.started(queue):
            await harness.let_workers_sleep()
            await harness.call(queue.enqueue, "past", 1, run_at=in_future(-MUCH_LATER))
            await harness.until_state(queue, "past", "completed")
            await harness.call(queue.enqueue, "now", 1, delay=0)
            assert (await harness.until_state(queue, "now", "completed")).result == 1

    @case
    async def test_a_delayed_job_that_is_withdrawn_does_not_run_when_it_is_due(self, harness: Harness) -> None:
        handler = Recorder()
        queue, client = harness.queue(handler), harness.client()
        for job_id in ("cancelled", "deleted", "last"):
            await harness.call(queue.enqueue, job_id, 1, delay=LATER)
        assert (await harness.call(queue.cancel, "cancelled")).status == "cancelled"
        assert await harness.call(client.delete_job, QUEUE, "deleted")
        async with harness.started(queue):
            await harness.until_state(queue, "last", "completed")
            await harness.call(queue.enqueue, "next", 1, delay=SOON)
            await harness.until_state(queue, "next", "completed")
        assert handler.ids == ["last", "next"]

    @case
    async def test_a_delayed_job_that_is_cancelled_can_be_enqueued_again_for_sooner(self, harness: Harness) -> None:
        handler = Recorder()
        queue = harness.queue(handler)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", 1, delay=MUCH_LATER)
            again = await harness.call(queue.enqueue, "a", 2)
            assert (again.status, again.existing_state) == ("duplicate", "queued")
            await harness.let_workers_sleep()
            assert (await harness.call(queue.cancel, "a")).status == "cancelled"
            assert (await harness.call(queue.enqueue, "a", 3, delay=SOON)).status == "queued"
            assert (await harness.until_state(queue, "a", "completed")).result == 3
        assert handler.ids == ["a"]

    @case
    async def test_of_two_sleeping_workers_one_runs_a_delayed_job(self, harness: Harness) -> None:
        handler = Recorder()
        queues = [harness.queue(handler), harness.queue(handler, storage=harness.reopen())]
        async with harness.started(queues[0]), harness.started(queues[1]):
            await harness.let_workers_sleep()
            for n in range(3):
                await harness.call(queues[0].enqueue, f"{n}", 1, delay=SOON)
            await harness.until_all(queues[0], ["0", "1", "2"])
        assert sorted(handler.ids) == ["0", "1", "2"]

    @case
    async def test_a_delayed_job_outlives_a_stop_and_a_start_of_its_worker(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        async with harness.started(queue):
            await harness.let_workers_sleep()
            await harness.call(queue.enqueue, "a", 1, delay=LATER)
        async with harness.started(queue):
            status: Any = await harness.until_state(queue, "a", "completed")
        assert status.attempts == 1
