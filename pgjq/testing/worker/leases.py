"""Worker suite: leases, expiry, checkpoints, and reaping."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.client import Client
from pgjq.errors import LeaseLostError
from pgjq.lease import LeasePolicy
from pgjq.reaper import Reaper
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE, echo, styled
from pgjq.worker.leadership import LeaderElection

if TYPE_CHECKING:
    from datetime import datetime

    from pgjq.testing.worker.harness import Harness, Style

BEATING = LeasePolicy(lease=60.0, heartbeat=0.05)
# Nothing renews the lease; it expires soon, and the worker's own reaper reaps the job.
LAPSING = LeasePolicy(lease=0.1, heartbeat=None, reap_interval=0.05)
ELECTION = LeaderElection(enabled=True, lock_ttl=30, renewal_interval=10, acquire_retry_interval=0.05)


class Stalling:
    """A handler whose first run outlasts its lease, and records what it may still do."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.reasons: list[Any] = []
        self.refused: list[str] = []
        self.late = threading.Event()

    def handle(self, job: Any) -> Any:
        if job.attempts > 1:
            return {"attempts": job.attempts, "checkpoint": job.checkpoint}
        job.save_checkpoint({"step": 1})
        job.signal.wait(LIMIT)
        self.reasons.append(job.signal.reason)
        self.let_go.wait(LIMIT)
        for write in (job.heartbeat, lambda: job.save_checkpoint({"step": 2})):
            try:
                write()
            except LeaseLostError:
                self.refused.append("refused")
        self.late.set()
        return "too late"


def wait_for_renewals(harness: Harness, job: Any, moved: float) -> bool:
    """Block this thread until a job's lease has been extended by this many seconds."""
    client = Client(harness.storage)

    def locked_until() -> datetime:
        status = client.get_status(job.queue, job.id)
        assert status is not None
        assert status.locked_until is not None
        return status.locked_until

    first, until = locked_until(), time.monotonic() + LIMIT
    while (locked_until() - first).total_seconds() < moved and time.monotonic() < until:
        time.sleep(0.005)
    return time.monotonic() < until


class Leases(WorkerCases):
    """Leases."""

    @case
    async def test_an_attempt_that_expires_is_told_and_the_next_one_may_complete(
        self, harness: Harness, style: Style
    ) -> None:
        reasons: list[Any] = []

        def handler(job: Any) -> int:
            if job.attempts == 1:
                job.signal.wait(LIMIT)
                reasons.append(job.signal.reason)
            return job.attempts

        async def coroutine(job: Any) -> int:
            try:
                await asyncio.sleep(LIMIT if job.attempts == 1 else 0)
            except asyncio.CancelledError:
                reasons.append(job.signal.reason)
                raise
            return job.attempts

        written = coroutine if style == "coroutine" else styled(style, handler)
        queue = harness.queue(written, lease_policy=LeasePolicy(expire=0.2), max_attempts=50)
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "a", None) > 1
        assert reasons == ["expired"]

    @case
    @pytest.mark.parametrize("mode", ["async"])
    async def test_a_last_attempt_that_expires_fails_the_job_while_its_handler_hangs(self, harness: Harness) -> None:
        let_go = threading.Event()
        queue = harness.queue(lambda job: job.payload or let_go.wait(LIMIT), concurrency=2)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None, expire_in_seconds=1, max_attempts=1)
            status = await harness.until_state(queue, "a", "failed")
            assert await harness.call(queue.enqueue_and_wait, "probe", 1) == 1
            let_go.set()
        assert "1 s" in status.error.message
        assert (await harness.call(queue.get_status, "a")).state == "failed"

    @case
    @pytest.mark.parametrize("style", ["function", "coroutine"])
    async def test_a_handler_that_holds_its_thread_or_its_loop_keeps_its_lease(
        self, harness: Harness, style: Style
    ) -> None:
        queue = harness.queue(
            lambda job: wait_for_renewals(harness, job, 0.2), style=style, lease_policy=BEATING, max_attempts=1
        )
        # In async mode a coroutine that blocks its loop must not block the case.
        async with harness.started(harness.worker(queue)):
            assert await harness.call(queue.enqueue_and_wait, "a", None) is True

    @case
    @pytest.mark.parametrize("mode", ["async"])
    async def test_a_blocked_loop_outlasts_its_lease_and_loses_nothing(self, harness: Harness) -> None:
        policy = LeasePolicy(lease=1.0, heartbeat=0.1, reap_interval=0.1)
        queue = harness.queue(
            lambda job: wait_for_renewals(harness, job, 1.2), style="coroutine", lease_policy=policy, max_attempts=1
        )
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "a", None) is True

    @case
    async def test_a_stalled_job_runs_again_with_its_checkpoint_and_the_late_outcome_is_refused(
        self, harness: Harness
    ) -> None:
        stalling = Stalling()
        queue = harness.queue(stalling.handle, lease_policy=LAPSING, concurrency=2, max_attempts=50)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", None)
            status = await harness.until_state(queue, "a", "completed")
            stalling.let_go.set()
            await harness.until(stalling.late.is_set, "the first run returns")
        assert stalling.reasons == ["lease lost"]
        assert stalling.refused == ["refused"] * 2
        assert status.result == {"attempts": status.attempts, "checkpoint": {"step": 1}}
        assert status.stalled >= 1
        assert (await harness.call(queue.get_status, "a")).result == status.result

    @case
    async def test_a_handler_renews_its_own_lease(self, harness: Harness) -> None:
        leases: list[Any] = []

        async def handler(job: Any) -> int:
            before = await harness.call(queue.get_status, job.id)
            await asyncio.sleep(0.02)
            await job.heartbeat()
            after = await harness.call(queue.get_status, job.id)
            leases.extend([before.locked_until, after.locked_until])
            return job.lease

        queue = harness.queue(handler, lease_policy=LeasePolicy(lease=60.0, heartbeat=None))
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "a", None) == 1
        assert leases[0] < leases[1]

    @case
    async def test_a_checkpoint_survives_a_retry(self, harness: Harness, style: Style) -> None:
        seen: list[Any] = []

        def handler(job: Any) -> None:
            seen.append(job.checkpoint)
            job.save_checkpoint({"done": job.attempts, "text": "☃\0"})
            if job.attempts < 3:
                raise ValueError("not yet")

        async def coroutine(job: Any) -> None:
            seen.append(job.checkpoint)
            await job.save_checkpoint({"done": job.attempts, "text": "☃\0"})
            assert job.checkpoint["done"] == job.attempts
            if job.attempts < 3:
                raise ValueError("not yet")

        queue = harness.queue(coroutine if style == "coroutine" else styled(style, handler))
        async with harness.started(queue):
            await harness.call(queue.enqueue_and_wait, "a", None)
        assert seen == [None, {"done": 1, "text": "☃\0"}, {"done": 2, "text": "☃\0"}]

    @case
    async def test_a_checkpoint_survives_a_release(self, harness: Harness) -> None:
        saved = threading.Event()

        async def handler(job: Any) -> Any:
            if job.checkpoint is None:
                await job.save_checkpoint([1])
                saved.set()
                await asyncio.sleep(LIMIT)
            return [job.attempts, job.checkpoint]

        queue = harness.queue(handler)
        await harness.start(queue)
        await harness.call(queue.enqueue, "a", None)
        await harness.until(saved.is_set, "the checkpoint is saved")
        await harness.stop(queue, grace=0)
        async with harness.started(queue):
            assert (await harness.until_state(queue, "a", "completed")).result == [1, [1]]

    @case
    async def test_a_reaper_recovers_fails_or_cancels_the_jobs_of_a_dead_worker(self, harness: Harness) -> None:
        queue = harness.queue(lambda job: job.attempts)
        await harness.abandon("again", "cancel")
        await harness.abandon("last", max_attempts=1)
        assert (await harness.call(queue.cancel, "cancel", active=True)).status == "processing"
        reaper = Reaper(storage=harness.storage)
        events = harness.log_events(reaper, "stalled")
        with reaper:
            await harness.until(lambda: len(events.all) == 3, "three jobs stalled")
        assert (await harness.call(queue.get_status, "last")).state == "failed"
        assert (await harness.call(queue.get_status, "cancel")).state == "cancelled"
        async with harness.started(queue):
            assert (await harness.until_state(queue, "again", "completed")).result == 2
        told = {event.id: (event.name, event.queue, event.action, event.reason, event.count) for event in events.all}
        assert told == {
            "again": ("stalled", QUEUE, "recovered", "lease", 1),
            "last": ("stalled", QUEUE, "failed", "lease", 1),
            "cancel": ("stalled", QUEUE, "cancelled", "lease", 0),
        }

    @case
    async def test_a_job_may_stall_as_often_as_the_policy_allows(self, harness: Harness) -> None:
        policy = LeasePolicy(lease=0.05, heartbeat=None, max_stalled=0)
        await harness.abandon("a", policy=policy, max_attempts=5)
        queue = harness.queue(echo)
        with Reaper(storage=harness.storage):
            status = await harness.until_state(queue, "a", "failed")
        assert (status.attempts, status.stalled, status.stalled_on) == (1, 1, ("dead",))

    @case
    @requires("leader_election")
    async def test_one_of_two_reapers_leads_and_the_other_follows_it(self, harness: Harness) -> None:
        reapers = [Reaper(storage=harness.storage, leader_election=ELECTION) for _ in range(2)]
        with reapers[0], reapers[1]:
            await harness.until(lambda: any(reaper.is_leader for reaper in reapers), "one leads")
            (leader,) = [reaper for reaper in reapers if reaper.is_leader]
            (other,) = [reaper for reaper in reapers if reaper is not leader]
            leader.stop()
            await harness.until(lambda: other.is_leader, "the other one leads")
            await harness.abandon("a")
            await harness.until_state(harness.queue(), "a", "failing")
            assert not leader.is_leader
