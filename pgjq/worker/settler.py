"""Outcomes on their way to the storage, in batches.

Outcomes come from the loop and from threads. A flush takes all that are there; while it is on its way the next ones
gather. When nothing else is running it starts at once, else it lingers a few milliseconds for company. A storage that
is away keeps its batch here, to be offered again: an outcome leaves only when the storage has taken or refused it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from pgjq.errors import StorageUnavailableError
from pgjq.job import JobError
from pgjq.outcome import Failed
from pgjq.storage.base import Settled, Settlement
from pgjq.worker.loops import BACKOFF, LONGEST_BACKOFF, LOOK_SECONDS, call_on_loop, cancel, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.outcome import Outcome
    from pgjq.storage.base import Operations
    from pgjq.worker.run import Run

LINGER = 0.002
BATCH = 500
TRIES = 3


Answered = list[tuple["Run", "Outcome", Settled]]


class Settler:
    """Settles what is put in; `settled` is called on the loop with each batch and its answers."""

    def __init__(
        self,
        ops: Operations,
        *,
        settled: Callable[[Answered], None],
        report: Callable[[Exception], None],
        hurried: Callable[[], bool],
    ) -> None:
        self._ops = ops
        self._settled = settled
        self._report = report
        self._hurried = hurried
        self._waiting: deque[tuple[Run, Outcome]] = deque()
        self._loop = asyncio.get_running_loop()
        self._kicked = False
        self._work = asyncio.Event()
        self._task = self._loop.create_task(self._run(), name="pgjq settler")

    def put(self, run: Run, outcome: Outcome) -> None:
        """Hand an outcome in, on the loop."""
        self._waiting.append((run, outcome))
        self._work.set()

    def put_from_thread(self, run: Run, outcome: Outcome) -> bool:
        """Hand an outcome in, from any thread; the loop is told once for many. False if the loop is closed."""
        self._waiting.append((run, outcome))
        if self._kicked:
            return True
        self._kicked = True
        return call_on_loop(self._loop, self._kick)

    def _kick(self) -> None:
        self._kicked = False
        self._work.set()

    async def stop(self) -> None:
        """End; what has not been taken by now stays with its lease."""
        await cancel(self._task)

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
                await self._offer(batch)

    async def _offer(self, batch: list[tuple[Run, Outcome]]) -> None:
        pause = BACKOFF
        settlements = [Settlement(run.claimed.lease, outcome) for run, outcome in batch]
        while True:
            try:
                answers = await self._ops.settle(settlements)
                break
            except StorageUnavailableError as error:
                self._report(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_BACKOFF)
            except Exception as error:  # noqa: BLE001  (a settler that dies takes every outcome along)
                self._report(error)
                return await self._offer_apart(batch)
        return self._answer([(*ended, answer) for ended, answer in zip(batch, answers, strict=True)])

    async def _offer_apart(self, batch: list[tuple[Run, Outcome]]) -> None:
        """Offer outcomes one by one, so that the one that the storage cannot take does not hold up the others."""
        for run, outcome in batch:
            await self._insist(run, outcome)

    async def _insist(self, run: Run, outcome: Outcome) -> None:
        """Offer an outcome until it is taken or refused. One that cannot be stored after all fails its job instead."""
        pause, tries = BACKOFF, 0
        while True:
            try:
                (answer,) = await self._ops.settle([Settlement(run.claimed.lease, outcome)])
            except StorageUnavailableError as error:
                self._report(error)
            except Exception as error:  # noqa: BLE001
                self._report(error)
                tries += 1
                if tries == TRIES:
                    outcome = Failed(JobError(type(error).__name__, "its outcome could not be stored; see the log"))
            else:
                return self._answer([(run, outcome, answer)])
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_BACKOFF)

    def _answer(self, answered: Answered) -> None:
        try:
            self._settled(answered)
        except Exception as error:  # noqa: BLE001
            self._report(error)
