"""The engine of a worker: claim, execute and settle on one event loop.

* `Claimer` claims while there is room. The heartbeat, the deadline watch and the reaper run on threads of their own.
* A claimed job is in `InFlight` until it is settled, and counts against the room for new claims. So the worker stops
  claiming when the storage does not accept outcomes.
* A job that has not started a second after its claim is released; the attempt does not count.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.deadline import Deadline, bounded, run_on_thread
from pgjq.errors import StorageError
from pgjq.outcome import Cancelled, Outcome, Released
from pgjq.storage.base import Settled, Settlement
from pgjq.worker.abort_signal import CANCELLED, EXPIRED, LEASE_LOST, SHUTDOWN
from pgjq.worker.claimer import Claimer
from pgjq.worker.executor import Executor
from pgjq.worker.fault_log import FaultLog
from pgjq.worker.heartbeat import DeadlineWatch, Heartbeat
from pgjq.worker.in_flight import InFlight
from pgjq.worker.job_log import is_debugged, log_dropped, log_lease_lost, log_processing, log_refused, log_settled
from pgjq.worker.lost_claims import LostClaims
from pgjq.worker.maintenance import Maintenance
from pgjq.worker.periodic_thread import CUT_SECONDS, call_on_loop, within
from pgjq.worker.publisher import Publisher
from pgjq.worker.reaping import WorkerReaper
from pgjq.worker.registration import WorkerRegistration
from pgjq.worker.run import Run, heartbeat_interval
from pgjq.worker.settler import Settler
from pgjq.worker.ticker import Ticker

if TYPE_CHECKING:
    import logging
    from collections.abc import Sequence

    from pgjq.lease import LeasePolicy
    from pgjq.schedules.schedule import Declared
    from pgjq.storage.base import Claimed, Operations, Storage
    from pgjq.worker.exit_conditions import WorkLimits
    from pgjq.worker.handler import Consumer
    from pgjq.worker.measurements import Measurements
    from pgjq.worker.settler import Answered

# How long a stop waits for a storage that does not answer, after its grace. With the time that the last calls take to
# fail, a stop ends within three seconds of its grace.
STOP_SECONDS = 1.25


class Engine:
    """Runs the jobs of some queues until it is stopped. Create and use it on one event loop."""

    measurements: Measurements | None = None  # Of its runs, if they are measured.

    def __init__(
        self,
        storage: Storage,
        consumers: Sequence[Consumer],
        *,
        worker: str,
        concurrency: int,
        policy: LeasePolicy,
        block_timeout: float,
        strict: bool,
        logger: logging.Logger,
        deadline: Deadline,
        schedules: Sequence[Declared] = (),
        limits: WorkLimits | None = None,
    ) -> None:
        self._consumers = {consumer.queue: consumer for consumer in consumers}
        self._worker, self._policy, self._deadline = worker, policy, deadline
        self._loop = asyncio.get_running_loop()
        self._ops, self._thread_ops = storage.operations("async"), storage.operations("sync")
        self.in_flight = InFlight()
        self._room = asyncio.Event()
        self._publisher = Publisher(self._loop, self._consumers)
        self._faults = FaultLog(logger, worker, self._publisher.error)
        self._executor = self._make_executor(storage, concurrency)
        settling = self._faults.activity("settling")
        self._settler = Settler(self._ops, settled=self._settled, report=settling, hurried=self._executor.is_idle)
        self._lost_claims = self._make_lost_claims()
        self.registration = self._make_registration(logger)
        self._start_threads(storage, logger, block_timeout, schedules)
        self._claimer = self._make_claimer(block_timeout, limits, strict=strict)

    def _make_executor(self, storage: Storage, concurrency: int) -> Executor:
        consumers = self._consumers.values()
        return Executor(
            storage,
            concurrency,
            threads=any(not target.is_coroutine for c in consumers for target in c.all_targets()),
            coroutines=any(target.is_coroutine for c in consumers for target in c.all_targets()),
            ended=self._ended,
            freed=self._room.set,
        )

    def _make_lost_claims(self) -> LostClaims:
        return LostClaims(
            self._ops,
            tuple(self._consumers),
            lease=self._policy.lease,
            found=self._take,
            report=self._faults.activity("looking for lost claims"),
        )

    def _make_registration(self, logger: logging.Logger) -> WorkerRegistration:
        return WorkerRegistration(
            self._worker,
            self._consumers,
            heartbeat=self._policy.heartbeat,
            logger=logger,
            report=self._faults.activity("writing the worker record"),
        )

    def _start_threads(
        self, storage: Storage, logger: logging.Logger, block_timeout: float, schedules: Sequence[Declared]
    ) -> None:
        self._heartbeat = Heartbeat(
            self.in_flight,
            storage.dedicated(),
            self.registration,
            usual=self._policy.heartbeat,
            abort=self._abort,
            release_late=self._release_late,
            report=self._faults.activity("renewing leases"),
        )
        self._reaper = WorkerReaper(
            storage.dedicated(),
            self._policy,
            logger,
            reaping=self._publisher.reaping,
            reaped=self._publisher.reaped,
            report=self._faults.activity("reaping"),
        )
        activity = self._faults.activity
        watching, keeping = activity("watching leases"), activity("keeping the storage in order")
        self._watch = DeadlineWatch(self.in_flight, usual=self._policy.lease, abort=self._abort, report=watching)
        self._maintenance = Maintenance(storage, self._worker, logger, report=keeping)
        self._ticker = Ticker(storage, logger, schedules, poll=block_timeout, report=activity("ticking schedules"))
        for thread in (self._heartbeat, self._watch, self._reaper, self._maintenance, self._ticker):
            thread.start()

    def _make_claimer(self, block_timeout: float, limits: WorkLimits | None, *, strict: bool) -> Claimer:
        return Claimer(
            self._ops,
            tuple(self._consumers),
            worker=self._worker,
            policy=self._policy,
            block_timeout=block_timeout,
            strict=strict,
            executor=self._executor,
            in_flight=self.in_flight,
            lost_claims=self._lost_claims,
            room=self._room,
            take=self._take,
            report=self._faults.activity("claiming"),
            limits=limits,
            caught_up=self._ticker.caught_up,
        )

    async def stop(self, grace: float) -> None:
        """Stop claiming, give running jobs `grace` seconds, release unfinished ones, clean up.

        A storage that does not answer gets a little longer; jobs that it could not settle keep their lease.
        """
        until = time.monotonic() + grace
        cut = self._loop.call_later(grace + STOP_SECONDS, self._deadline.end_within, 0.0)
        with bounded(self._deadline):
            await self._stop(until)
        cut.cancel()

    async def _stop(self, until: float) -> None:
        self._claimer.end()
        await self._claimer.wait(max(0.0, until - time.monotonic()) + STOP_SECONDS)
        await self._lost_claims.stop()
        self._release(self._executor.take_back())
        await self._wait_for_runs(until)
        # Released first: a handler that returns because of its abort signal has not completed its job.
        self._release(self.in_flight.all())
        for run in self.in_flight.all():
            run.signal.abort(SHUTDOWN)
            self._executor.abort(run)
        over = until + STOP_SECONDS + CUT_SECONDS
        await self._wait_until_settled(over)
        await self._settler.stop()
        await self._executor.stop(over)
        await run_on_thread(self._watch.stop)
        await run_on_thread(self._heartbeat.stop)
        await self.registration.remove(self._ops)
        await asyncio.gather(*(run_on_thread(t.stop) for t in (self._reaper, self._maintenance, self._ticker)))
        self._publisher.stop(self.in_flight.all())

    async def _wait_for_runs(self, until: float) -> None:
        while any(not run.ended for run in self.in_flight.all()) and (left := until - time.monotonic()) > 0:
            self._room.clear()
            await within(min(left, 1.0), self._room.wait())

    async def _wait_until_settled(self, until: float) -> None:
        """Wait until no run is in flight; drop those that an unavailable storage cannot settle.

        `InFlight` decides, not the settler: a thread that has just ended a run may not have handed its outcome in yet.
        """
        while any(run.may_be_settled() for run in self.in_flight.all()) and time.monotonic() < until:
            self._room.clear()
            await within(0.2, self._room.wait())

    def _release(self, runs: list[Run]) -> None:
        for run in runs:
            if run.end():
                self._settler.put(run, Released())

    def release_all(self) -> None:
        """Release all runs on this thread, and end them: a handler blocks the event loop."""
        self._claimer.given_up = True
        runs = [run for run in self.in_flight.all() if run.end()]
        for run in self.in_flight.all():
            run.signal.abort(SHUTDOWN)
        with bounded(Deadline(CUT_SECONDS)), suppress(StorageError):  # Else their leases expire.
            self._release_late(self._thread_ops, runs)

    def _release_late(self, ops: Operations, runs: list[Run]) -> None:
        """Release runs on the heartbeat's thread and connection: the event loop may be blocked."""
        self._executor.claim_less()
        try:
            answers = drive(ops.settle([Settlement(run.claimed.lease, Released()) for run in runs]))
        except Exception:
            self._settler.mark_uncertain(runs)
            for run in runs:
                self._settler.put_from_thread(run, Released())
            raise
        self.in_flight.remove(runs)
        answered: Answered = [(run, Released(), answer) for run, answer in zip(runs, answers, strict=True)]
        call_on_loop(self._loop, self._settled, answered)

    def _take(self, jobs: list[Claimed], sent: float) -> None:
        """Start the runs of jobs that were claimed at `sent` or later."""
        runs = [self._run(job, sent) for job in jobs]
        self.in_flight.take(runs)
        self._heartbeat.note(runs)
        self._watch.note(runs)
        debug = is_debugged(self._consumers.values())
        for run in runs:
            if debug:
                log_processing(run)
            if run.consumer.bus.listens:
                self._publisher.claimed(run)
        self._executor.submit(runs)
        if runs and self._executor.may_keep_waiting:
            self._heartbeat.check_by(runs[0].start_by)

    def _run(self, job: Claimed, sent: float) -> Run:
        consumer = self._consumers[job.lease.queue]
        beat = heartbeat_interval(job, self._policy)
        return Run(job, consumer, worker=self._worker, sent=sent, beat=beat, committed=self._committed)

    def _ended(self, run: Run, outcome: Outcome, on_loop: bool) -> None:  # noqa: FBT001
        if on_loop:
            self._settler.put(run, outcome)
        elif not self._settler.put_from_thread(run, outcome):
            log_dropped(run, outcome)

    def _settled(self, answered: Answered) -> None:
        self.in_flight.remove(run for run, _, _ in answered)
        self._room.set()
        if self.measurements is not None:
            self.measurements.settled(answered)
        debug = is_debugged(self._consumers.values())
        for run, outcome, answer in answered:
            if answer.state is None:
                log_refused(run, outcome, known=run.abort_reason == LEASE_LOST)
            elif debug or answer.state != "completed":
                log_settled(run, outcome, answer.state)
            if run.consumer.bus.listens:
                self._publisher.settled(run, outcome, answer.state)

    def _committed(self, run: Run, outcome: Outcome) -> None:
        """Record, on any thread, a run that its handler completed in its own transaction."""
        call_on_loop(self._loop, self._settled, [(run, outcome, Settled(run.claimed.lease, "completed"))])

    def _abort(self, run: Run, reason: str) -> None:
        """Abort a run from another thread; a run that is over is settled without its handler."""
        first = run.signal.abort(reason)
        if first and reason == LEASE_LOST:
            log_lease_lost(run)
            if self.measurements is not None:
                self.measurements.lease_lost()
        elif reason == CANCELLED and run.end():
            self._settler.put_from_thread(run, Cancelled())
        elif reason == EXPIRED and run.give_up():
            self._settler.put_from_thread(run, Released())
        elif reason == EXPIRED and run.end():
            self._settler.put_from_thread(run, run.expire())
        else:
            return  # Every heartbeat repeats this until the run is settled; a coroutine is cancelled once.
        self._executor.abort(run)
