"""Settle outcomes in batches.

Outcomes come from the loop and from threads. A flush takes all outcomes present; the next ones collect while it is in
progress. When nothing else is running it starts at once, else it waits a few milliseconds for more.

What each failure does
* The storage is unavailable: the settler offers the batch again, after growing pauses.
* Any other error (schema, privileges, an unexpected one): the settler offers the batch's outcomes one by one, and those
  that fail again later, beside the next batches. An outcome leaves only when the storage has settled it or has refused
  it because the lease is lost.
* A settlement that may have succeeded although the storage was unavailable (its reply was lost) is repeated. If the
  storage then refuses it, the settler checks whether the first one succeeded before it reports a lost lease.
* A ValidationError is about the outcome's value, which no later try can store: the job fails instead.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from pgjq.errors import StorageUnavailableError, ValidationError
from pgjq.job import JobError
from pgjq.outcome import Failed, Failing, Released, Snoozed
from pgjq.storage.base import Settled, Settlement
from pgjq.worker.periodic_thread import BACKOFF, CUT_SECONDS, LOOK_SECONDS, call_on_loop, cancel, longer, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgjq.outcome import Outcome
    from pgjq.storage.base import Operations
    from pgjq.worker.fault_log import Activity
    from pgjq.worker.run import Run

LINGER = 0.002
BATCH = 500

Answered = list[tuple["Run", "Outcome", Settled]]


class Settler:
    """Settles outcomes; calls `settled` on the loop with each batch and its replies."""

    def __init__(
        self,
        ops: Operations,
        *,
        settled: Callable[[Answered], None],
        report: Activity,
        hurried: Callable[[], bool],
    ) -> None:
        self._ops = ops
        self._settled = settled
        self._report = report
        self._hurried = hurried
        self._waiting: deque[tuple[Run, Outcome]] = deque()
        self._unanswered: set[Run] = set()  # Runs with a settlement that may have succeeded without a reply.
        self._apart: deque[tuple[Run, Outcome]] = deque()  # Outcomes that failed alone, each offered again by itself.
        self._loop = asyncio.get_running_loop()
        self._kicked = False
        self._work = asyncio.Event()
        self._has_apart = asyncio.Event()
        self._tasks = [
            self._loop.create_task(self._run(), name="pgjq settler"),
            self._loop.create_task(self._retry_one_by_one(), name="pgjq settler of single outcomes"),
        ]

    def put(self, run: Run, outcome: Outcome) -> None:
        """Add an outcome, on the loop."""
        self._waiting.append((run, outcome))
        self._work.set()

    def put_from_thread(self, run: Run, outcome: Outcome) -> bool:
        """Add an outcome from any thread; wake the loop once for many. False if it is closed."""
        self._waiting.append((run, outcome))
        if self._kicked:
            return True
        self._kicked = True
        return call_on_loop(self._loop, self._wake)

    def mark_uncertain(self, runs: Iterable[Run]) -> None:
        """Record, from any thread, that a settlement of these runs may have succeeded already."""
        self._unanswered.update(runs)

    def _wake(self) -> None:
        self._kicked = False
        self._work.set()

    async def stop(self) -> None:
        """End; jobs that are not settled by now keep their lease until it expires."""
        await asyncio.gather(*(cancel(task, CUT_SECONDS) for task in self._tasks))

    async def _run(self) -> None:
        while True:
            await within(LOOK_SECONDS, self._work.wait())
            if not self._waiting:
                self._work.clear()
                continue
            if len(self._waiting) < BATCH and not self._hurried():
                await asyncio.sleep(LINGER)
            self._work.clear()
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH))]
            if self._waiting:
                self._work.set()
            if batch:
                await self._settle_batch(batch)

    async def _settle_batch(self, batch: list[tuple[Run, Outcome]]) -> None:
        pause = BACKOFF
        while True:
            try:
                return self._apply_results(await self._settle(batch))
            except StorageUnavailableError as error:
                self._report(error)
                self.mark_uncertain(run for run, _ in batch)
                await asyncio.sleep(pause)
                pause = longer(pause)
            except Exception as error:  # noqa: BLE001  (a settler that dies loses every outcome)
                self._report(error)
                self.mark_uncertain(run for run, _ in batch)  # The error may be that of `find_settled`.
                return await self._settle_one_by_one(batch)

    async def _settle(self, batch: list[tuple[Run, Outcome]]) -> Answered:
        sent = time.monotonic()
        answers = await self._ops.settle([Settlement(run.claimed.lease, outcome) for run, outcome in batch])
        answered = [(*ended, answer) for ended, answer in zip(batch, answers, strict=True)]
        if self._unanswered:
            answered = await self._resolve_lost_replies(answered, sent)
        self._report.succeeded()
        return answered

    async def _resolve_lost_replies(self, answered: Answered, sent: float) -> Answered:
        """Replace refused results of settlements that an earlier, unanswered try has made."""
        refused = [n for n, (run, _, answer) in enumerate(answered) if not answer.state and run in self._unanswered]
        made = await self._ops.find_settled([Settlement(answered[n][2].lease, answered[n][1]) for n in refused])
        for n, settled in zip(refused, made, strict=True):
            run, outcome, _ = answered[n]
            answered[n] = run, outcome, settled if settled.state else _deduce(run, outcome, settled, sent)
        self._unanswered.difference_update([run for run, _, _ in answered])
        return answered

    async def _settle_one_by_one(self, batch: list[tuple[Run, Outcome]]) -> None:
        """Offer outcomes one by one, so that one that cannot be stored does not delay the others."""
        for run, outcome in batch:
            try:
                answered = await self._settle([(run, outcome)])
            except Exception as error:  # noqa: BLE001
                self._report(error)
                self.mark_uncertain([run])
                self._apart.append((run, instead(outcome, error)))
                self._has_apart.set()
            else:
                self._apply_results(answered)

    async def _retry_one_by_one(self) -> None:
        pause = BACKOFF
        while True:
            await self._has_apart.wait()
            await asyncio.sleep(pause)
            batch = [self._apart.popleft() for _ in range(len(self._apart))]
            self._has_apart.clear()
            await self._settle_one_by_one(batch)
            pause = longer(pause) if self._apart else BACKOFF

    def _apply_results(self, answered: Answered) -> None:
        try:
            self._settled(answered)
        except Exception as error:  # noqa: BLE001
            self._report(error)


def _deduce(run: Run, outcome: Outcome, settled: Settled, sent: float) -> Settled:
    """Return the reply for a run that put its job back, if the job was claimed again or is gone.

    Only this worker can have ended a run whose lease had not expired when the second settlement was sent.
    """
    over = min(moment for moment in (run.trusted_until, run.expires, inf) if moment is not None)
    if over <= sent or not isinstance(outcome, Failing | Released | Snoozed):
        return settled
    failing = isinstance(outcome, Failing) or run.claimed.attempts > 1
    return settled._replace(state="failing" if failing else "queued")


def instead(outcome: Outcome, error: Exception) -> Outcome:
    """Return the outcome to offer after an error: a failure if its value cannot be stored."""
    if not isinstance(error, ValidationError):
        return outcome
    return Failed(JobError(type(error).__name__, f"its outcome could not be stored: {error}"), error)
