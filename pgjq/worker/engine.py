"""The engine of a worker: claim, execute and settle on one event loop.

* `Claimer` claims while there is room. The heartbeat, the deadline watch and the reaper run on threads of their own.
* A claimed job is in `InFlight` until it is settled, and counts against the room for new claims. So the worker stops
  claiming when the storage does not accept outcomes.
* A job that has not started a second after its claim is released; the attempt does not count.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.deadline import bounded
from pgjq.errors import TimeoutError
from pgjq.outcome import Cancelled, Outcome, Released
from pgjq.storage.base import Settled, Settlement
from pgjq.worker.abort_signal import CANCELLED, EXPIRED, LEASE_LOST, SHUTDOWN
from pgjq.worker.claimer import Claimer
from pgjq.worker.executor import Executor
from pgjq.worker.fault_log import FaultLog
from pgjq.worker.heartbeat import DeadlineWatch, Heartbeat
from pgjq.worker.in_flight import InFlight
from pgjq.worker.job_log import log_dropped, log_lease_lost, log_processing, log_refused, log_settled
from pgjq.worker.lost_claims import LostClaims
from pgjq.worker.maintenance import Maintenance
from pgjq.worker.periodic_thread import CUT_SECONDS, call_on_loop, within
from pgjq.worker.publisher import Publisher
from pgjq.worker.registration import WorkerRegistration
from pgjq.worker.run import Run
from pgjq.worker.settler import Settler
from pgjq.worker.ticker import Ticker
from pgjq.worker.worker_reaper import WorkerReaper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.deadline import Deadline
    from pgjq.lease import LeasePolicy
    from pgjq.schedules.schedule import Declared
    from pgjq.storage.base import Claimed, Operations, Storage
    from pgjq.worker.handler import Consumer
    from pgjq.worker.settler import Answered

# How long a stop waits for a storage that does not answer, after its grace. With the time that the last calls take to
# fail, a stop ends within three seconds of its grace.
GOODBYE_SECONDS = 1.25


class Engine:
    """Runs the jobs of some queues until it is stopped. Create and use it on one event loop."""

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
    ) -> None:
        self._consumers = {consumer.queue: consumer for consumer in consumers}
        self._deadline = deadline
        self._worker, self._policy = worker, policy
        self._loop = asyncio.get_running_loop()
        self._ops = storage.operations("async")
        self._in_flight = InFlight()
        self._room = asyncio.Event()
        self._publisher = Publisher(self._loop, self._consumers)
        self._faults = FaultLog(logger, worker, self._publisher.error)
        self._executor = self._make_executor(storage, concurrency)
        report = self._faults.activity("settling")
        self._settler = Settler(self._ops, settled=self._settled, report=report, hurried=self._nothing_runs)
        self._lost_claims = self._make_lost_claims()
        self._registration = self._make_registration(logger)
        self._start_threads(storage, logger, block_timeout, schedules)
        self._claimer = self._make_claimer(block_timeout, strict=strict)

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
            self._in_flight,
            storage.dedicated(),
            self._registration,
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
        report = self._faults.activity("watching leases")
        self._watch = DeadlineWatch(self._in_flight, usual=self._policy.lease, abort=self._abort, report=report)
        report = self._faults.activity("keeping the storage in order")
        self._maintenance = Maintenance(storage, self._worker, logger, report=report)
        report = self._faults.activity("ticking schedules")
        self._ticker = Ticker(storage, logger, schedules, poll=block_timeout, report=report)
        for thread in (self._heartbeat, self._watch, self._reaper, self._maintenance, self._ticker):
            thread.start()

    def _make_claimer(self, block_timeout: float, *, strict: bool) -> Claimer:
        return Claimer(
            self._ops,
            tuple(self._consumers),
            worker=self._worker,
            policy=self._policy,
            block_timeout=block_timeout,
            strict=strict,
            executor=self._executor,
            in_flight=self._in_flight,
            lost_claims=self._lost_claims,
            room=self._room,
            take=self._take,
            report=self._faults.activity("claiming"),
        )

    async def stop(self, grace: float) -> None:
        """Stop claiming, give running jobs `grace` seconds, release unfinished ones, clean up.

        A storage that does not answer gets a little longer, and no more: jobs that it could not settle keep their lease
        until it expires.
        """
        until = time.monotonic() + grace
        cut = self._loop.call_later(grace + GOODBYE_SECONDS, self._deadline.end_within, 0.0)
        with bounded(self._deadline):
            await self._stop(until)
        cut.cancel()

    async def _stop(self, until: float) -> None:
        self._claimer.end()
        await self._claimer.wait(max(0.0, until - time.monotonic()) + GOODBYE_SECONDS)
        await self._lost_claims.stop()
        self._release(self._executor.take_back())
        await self._wait_for_runs(until)
        # Released first: a handler that returns because of its abort signal has not completed its job.
        self._release(self._in_flight.all())
        for run in self._in_flight.all():
            run.signal.abort(SHUTDOWN)
            self._executor.abort(run)
        await self._wait_until_settled(until + GOODBYE_SECONDS + CUT_SECONDS)
        await self._settler.stop()
        await self._executor.stop()
        await asyncio.to_thread(self._watch.stop)
        await asyncio.to_thread(self._heartbeat.stop)
        await self._registration.remove(self._ops)
        background = (self._reaper, self._maintenance, self._ticker)
        await asyncio.gather(*(asyncio.to_thread(thread.stop) for thread in background))
        self._publisher.stop(self._in_flight.all())

    async def _wait_for_runs(self, until: float) -> None:
        while any(not run.ended for run in self._in_flight.all()) and (left := until - time.monotonic()) > 0:
            self._room.clear()
            await within(min(left, 1.0), self._room.wait())

    async def _wait_until_settled(self, until: float) -> None:
        """Wait until no run is in flight; drop those that an unavailable storage cannot settle.

        `InFlight` decides, not the settler: a thread that has just ended a run may not have handed its outcome in yet.
        """
        while any(run.may_be_settled() for run in self._in_flight.all()) and time.monotonic() < until:
            self._room.clear()
            await within(0.2, self._room.wait())

    def _release(self, runs: list[Run]) -> None:
        for run in runs:
            if run.end():
                self._settler.put(run, Released())

    def _release_late(self, ops: Operations, runs: list[Run]) -> None:
        """Release runs on the heartbeat's thread and connection: the event loop may be blocked."""
        self._executor.claim_less()
        try:
            answers = drive(ops.settle([Settlement(run.claimed.lease, Released()) for run in runs]))
        except Exception:
            self._settler.doubt(runs)
            for run in runs:
                self._settler.put_from_thread(run, Released())
            raise
        self._in_flight.let_go(runs)
        answered: Answered = [(run, Released(), answer) for run, answer in zip(runs, answers, strict=True)]
        call_on_loop(self._loop, self._settled, answered)

    def _take(self, jobs: list[Claimed], sent: float) -> None:
        """Start the runs of jobs that were claimed at `sent` or later."""
        runs = [self._run(job, sent) for job in jobs]
        self._in_flight.take(runs)
        self._heartbeat.note(runs)
        self._watch.note(runs)
        debug = self._is_debugged()
        for run in runs:
            if debug:
                log_processing(run)
            if run.consumer.bus.listens:
                self._publisher.claimed(run)
        self._executor.submit(runs)
        if runs and self._executor.may_keep_waiting:
            self._heartbeat.look_by(runs[0].start_by)

    def _run(self, job: Claimed, sent: float) -> Run:
        consumer = self._consumers[job.lease.queue]
        return Run(job, consumer, worker=self._worker, sent=sent, beat=self._beat(job), committed=self._committed)

    def _beat(self, job: Claimed) -> float | None:
        """Return the heartbeat interval of a job: half of its `heartbeat_seconds`, else the policy's.

        Without a lease the heartbeat renews nothing, but still finds cancel requests.
        """
        own = job.options.heartbeat_seconds
        return own / 2 if own is not None else self._policy.heartbeat

    def _nothing_runs(self) -> bool:
        return self._executor.running == 0 and self._executor.waiting == 0

    def _is_debugged(self) -> bool:
        return any(consumer.bus.logger.isEnabledFor(logging.DEBUG) for consumer in self._consumers.values())

    def _ended(self, run: Run, outcome: Outcome, on_loop: bool) -> None:  # noqa: FBT001
        if on_loop:
            self._settler.put(run, outcome)
        elif not self._settler.put_from_thread(run, outcome):
            log_dropped(run, outcome)

    def _settled(self, answered: Answered) -> None:
        self._in_flight.let_go(run for run, _, _ in answered)
        self._room.set()
        debug = self._is_debugged()
        for run, outcome, answer in answered:
            if answer.state is None:
                log_refused(run, outcome, known=run.abort_reason == LEASE_LOST)
            elif debug or answer.state != "completed":
                log_settled(run, outcome, answer.state)
            if run.consumer.bus.listens:
                self._publisher.settled(run, outcome, answer.state)

    def _committed(self, run: Run, outcome: Outcome) -> None:
        """Record, on any thread, a run that its handler completed in its own transaction."""
        answer = Settled(run.claimed.lease, "completed")
        call_on_loop(self._loop, self._settled, [(run, outcome, answer)])

    def _abort(self, run: Run, reason: str) -> None:
        """Abort a run from another thread; a run that is over is settled without its handler."""
        first = run.signal.abort(reason)
        if first and reason == LEASE_LOST:
            log_lease_lost(run)
        elif reason == CANCELLED and run.end():
            self._settler.put_from_thread(run, Cancelled())
        elif reason == EXPIRED and run.give_up():
            self._settler.put_from_thread(run, Released())
        elif reason == EXPIRED and run.end():
            self._settler.put_from_thread(run, self._expired(run))
        else:
            return  # Every heartbeat repeats this until the run is settled; a coroutine is cancelled once.
        self._executor.abort(run)

    def _expired(self, run: Run) -> Outcome:
        return run.decide(TimeoutError(f"the attempt took longer than {run.claimed.expire_seconds:g} s"), 0.5)
