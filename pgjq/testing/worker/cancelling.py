"""Worker suite: cancelling a job, in each of its states and in each style of handler."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.errors import JobCancelledError
from pgjq.lease import LeasePolicy
from pgjq.outcome import Retry
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE, echo

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.testing.worker.harness import Harness, Style

# A worker learns from its next heartbeat that a running job was cancelled.
ATTENTIVE = LeasePolicy(lease=60.0, heartbeat=0.05)


class Cleanup:
    """A coroutine handler that catches its cancellation and continues until it is released."""

    def __init__(self, *, swallows: bool) -> None:
        self.cancelled = threading.Event()
        self.let_go = threading.Event()
        self.ran: list[str] = []
        self._swallows = swallows

    async def handle(self, job: Any) -> Any:
        self.ran.append(job.id)
        if job.payload != "hang":
            return job.payload
        try:
            await asyncio.sleep(LIMIT)
        except asyncio.CancelledError:
            self.cancelled.set()
            await asyncio.to_thread(self.let_go.wait, LIMIT)
            if not self._swallows:
                raise
        return "too late"


def waiting_for_signal(started: threading.Event, reasons: list[Any]) -> Callable[[Any], Any]:
    """Return a plain handler that runs until its signal is set, or does as its payload says."""

    def handler(job: Any) -> Any:
        if job.payload == "quick":
            return "done"
        started.set()
        reasons.append((job.signal.wait(LIMIT), job.signal.aborted, job.signal.reason))
        return "too late"

    return handler


class Cancelling(WorkerCases):
    """Cancelling."""

    @case
    async def test_a_job_that_waits_is_cancelled_and_never_runs(self, harness: Harness) -> None:
        ran: list[str] = []
        queue = harness.queue(lambda job: ran.append(job.id))
        await harness.call(queue.enqueue, "queued", 1)
        await harness.call(queue.enqueue, "deferred", 1, delay=3600)
        await harness.call(queue.enqueue, "asked", 1)
        assert (await harness.call(queue.cancel, "queued")).status == "cancelled"
        assert (await harness.call(queue.cancel, "deferred")).status == "cancelled"
        assert (await harness.call(queue.cancel, "asked", active=True)).status == "cancelled"
        async with harness.started(queue):
            await harness.call(queue.enqueue_and_wait, "probe", 1)
        assert ran == ["probe"]
        assert (await harness.call(queue.get_status, "queued")).state == "cancelled"

    @case
    async def test_cancelling_what_has_ended_says_how_and_changes_nothing(self, harness: Harness) -> None:
        def handler(job: Any) -> Any:
            return 1 / job.payload

        queue = harness.queue(handler, max_attempts=1)
        await harness.call(queue.enqueue, "withdrawn", 1)
        await harness.call(queue.cancel, "withdrawn")
        async with harness.started(queue):
            await harness.call(queue.enqueue, "failed", 0)
            await harness.call(queue.enqueue_and_wait, "completed", 1)
            await harness.until_state(queue, "failed", "failed")
        for active in (False, True):
            assert (await harness.call(queue.cancel, "completed", active=active)).status == "completed"
            assert (await harness.call(queue.cancel, "failed", active=active)).status == "failed"
            assert (await harness.call(queue.cancel, "unknown", active=active)).status == "not_found"
            assert (await harness.call(queue.cancel, "withdrawn", active=active)).status == "cancelled"
        assert await harness.call(queue.get_result, "completed") == 1

    @case
    async def test_a_failing_job_is_cancelled_and_runs_no_more(self, harness: Harness) -> None:
        ran: list[str] = []

        def handler(job: Any) -> None:
            ran.append(job.id)
            if job.id == "a":
                raise Retry(delay=0.2)

        queue = harness.queue(handler)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            await harness.until_state(queue, "a", "failing")
            assert (await harness.call(queue.cancel, "a")).status == "cancelled"
            await harness.call(queue.enqueue, "after its time", None, delay=0.3)
            await harness.until_state(queue, "after its time", "completed")
        assert ran == ["a", "after its time"]

    @case
    async def test_a_running_job_is_left_alone_unless_asked_to_end(self, harness: Harness, style: Style) -> None:
        started, reasons = threading.Event(), list[Any]()
        let_go = threading.Event()

        def handler(job: Any) -> Any:
            started.set()
            reasons.append(let_go.wait(LIMIT) and job.signal.aborted)
            return job.payload

        queue = harness.queue(handler, style=style, lease_policy=ATTENTIVE)
        # In async mode a coroutine that blocks would block the case, too.
        server = harness.worker(queue)
        async with harness.started(server):
            await harness.call(queue.enqueue, "a", 1)
            await harness.until(started.is_set, "the handler starts")
            assert (await harness.call(queue.cancel, "a")).status == "processing"
            let_go.set()
            assert (await harness.until_state(queue, "a", "completed", "cancelled")).state == "completed"
        assert reasons == [False]

    @case
    @pytest.mark.parametrize("style", ["function", "callback"])
    async def test_a_running_function_is_told_and_its_result_dropped(self, harness: Harness, style: Style) -> None:
        started, reasons = threading.Event(), list[Any]()
        queue = harness.queue(waiting_for_signal(started, reasons), style=style, lease_policy=ATTENTIVE)
        events = harness.log_events(queue)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            await harness.until(started.is_set, "the handler starts")
            assert (await harness.call(queue.cancel, "a", active=True)).status == "processing"
            status = await harness.until_state(queue, "a", "cancelled")
            assert await harness.call(queue.enqueue_and_wait, "probe", "quick") == "done"
        assert (reasons, status.result, status.error) == ([(True, True, "cancelled")], None, None)
        assert events.names("a") == ["queued", "processing", "cancelled"]

    @case
    async def test_a_callback_that_never_calls_is_released_by_a_cancel(self, harness: Harness) -> None:
        def callback(job: Any, done: Callable[..., None]) -> None:
            if job.payload == "quick":
                done(None, 1)

        queue = harness.queue(lease_policy=ATTENTIVE)
        queue.execute(callback)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            await harness.until_state(queue, "a", "processing")
            await harness.call(queue.cancel, "a", active=True)
            await harness.until_state(queue, "a", "cancelled")
            assert await harness.call(queue.enqueue_and_wait, "probe", "quick") == 1

    @case
    async def test_a_running_coroutine_is_cancelled_and_its_waiter_told(self, harness: Harness) -> None:
        cleanup = Cleanup(swallows=False)
        queue = harness.queue(cleanup.handle, lease_policy=ATTENTIVE)
        cleanup.let_go.set()
        async with harness.started(queue):
            waiter = harness.background(queue.enqueue_and_wait, "a", "hang")
            await harness.until(lambda: cleanup.ran, "the handler starts")
            await harness.call(queue.cancel, "a", active=True)
            with pytest.raises(JobCancelledError):
                await waiter()
            assert await harness.call(queue.enqueue_and_wait, "probe", 1) == 1
        assert (await harness.call(queue.get_status, "a")).state == "cancelled"

    @case
    @pytest.mark.parametrize("swallows", [False, True], ids=["cleans up", "ignores"])
    async def test_a_cancelled_coroutine_that_goes_on_keeps_its_slot_and_no_job_waits_behind_it(
        self, harness: Harness, swallows: bool
    ) -> None:
        cleanup = Cleanup(swallows=swallows)
        queue = harness.queue(cleanup.handle, lease_policy=ATTENTIVE)
        other = harness.queue(echo)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", "hang")
            await harness.until(lambda: cleanup.ran, "the handler starts")
            await harness.call(queue.cancel, "a", active=True)
            await harness.until(cleanup.cancelled.is_set, "the coroutine is cancelled")
            assert (await harness.until_state(queue, "a", "cancelled")).result is None
            async with harness.started(other):
                for n in range(5):
                    assert await harness.call(queue.enqueue_and_wait, f"{n}", n) == n
            assert cleanup.ran == ["a"]
            cleanup.let_go.set()
            assert await harness.call(queue.enqueue_and_wait, "probe", 1) == 1
        assert (await harness.call(queue.get_status, "a")).state == "cancelled"

    @case
    async def test_a_handler_that_cancels_its_own_job_ends_it(self, harness: Harness) -> None:
        queue = harness.queue(lease_policy=ATTENTIVE)

        async def handler(job: Any) -> None:
            await harness.call(queue.cancel, job.id, active=True)

        queue.execute(handler)
        async with harness.started(queue):
            with pytest.raises(JobCancelledError):
                await harness.call(queue.enqueue_and_wait, "a", None)

    @case
    async def test_a_cancelled_id_is_free_and_only_the_newer_payload_runs(self, harness: Harness) -> None:
        ran: list[Any] = []
        queue = harness.queue(lambda job: ran.append(job.payload))
        await harness.call(queue.enqueue, "a", "old")
        await harness.call(queue.cancel, "a")
        assert (await harness.call(queue.enqueue, "a", "new")).status == "queued"
        async with harness.started(queue):
            await harness.until_state(queue, "a", "completed")
        assert ran == ["new"]

    @case
    @requires("definitions")
    @pytest.mark.parametrize("policy", ["singleton", "key_strict_fifo"])
    async def test_a_cancel_takes_a_blocked_job_out_of_its_key_and_frees_the_key(
        self, harness: Harness, policy: str
    ) -> None:
        cleanup = Cleanup(swallows=False)
        cleanup.let_go.set()
        await harness.call(harness.client().create_queue, QUEUE, policy=policy)
        queue = harness.queue(cleanup.handle, lease_policy=ATTENTIVE, concurrency=3)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "first", "hang", singleton_key="k")
            await harness.until(lambda: cleanup.ran, "the first job starts")
            for name in ("second", "third"):
                await harness.call(queue.enqueue, name, name, singleton_key="k")
            assert (await harness.call(queue.cancel, "second")).status == "cancelled"
            await harness.call(queue.cancel, "first", active=True)
            await harness.until_state(queue, "third", "completed")
        assert cleanup.ran == ["first", "third"]
