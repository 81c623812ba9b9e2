"""Claims jobs while a worker has room for them, and sleeps while none is due.

* A claim asks for as many jobs as there are free slots, plus the number that the handlers recently finished in a
  tenth of a second, so that handlers do not wait for the storage.
* Each claim begins with the next queue, so that no queue starves behind the backlog of another. With `strict` each
  claim begins with the first queue.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from secrets import randbits
from typing import TYPE_CHECKING

from pgjq.errors import StorageUnavailableError
from pgjq.worker.periodic_thread import BACKOFF, LOOK_SECONDS, longer, within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.lease import LeasePolicy
    from pgjq.storage.base import Claimed, Operations
    from pgjq.worker.executor import Executor
    from pgjq.worker.exit_conditions import WorkLimits
    from pgjq.worker.fault_log import Activity
    from pgjq.worker.in_flight import InFlight
    from pgjq.worker.lost_claims import LostClaims

# How often the sleep restarts. It does not bound how late work is found: inside, a storage polls every `block_timeout`
# seconds, notified or not.
ASLEEP = 3600.0

# A larger claim is hardly cheaper per job, and the handlers would run out of jobs while they wait for it. With smaller
# ones a claim, the handlers and a settle all work at the same time.
CLAIM = 500

# How often a worker that drains its queues looks again, while its runs or schedules may make further jobs due.
DRAIN_LOOK = 0.25


@dataclass(eq=False)
class Claimer:
    """One task that claims until it is stopped; create and use it on one event loop.

    `room` is set when there may be room for a claim; `take` starts the runs of jobs that were claimed at a time. With
    `limits` it ends by itself; `caught_up` is whether the schedules that were due have made their jobs.
    """

    ops: Operations
    queues: Sequence[str]
    worker: str
    policy: LeasePolicy
    block_timeout: float
    strict: bool
    executor: Executor
    in_flight: InFlight
    lost_claims: LostClaims
    room: asyncio.Event
    take: Callable[[list[Claimed], float], None]
    report: Activity
    limits: WorkLimits | None
    caught_up: Callable[[], bool]
    given_up: bool = False  # Set by another thread that stops this worker while a handler blocks the loop.

    def __post_init__(self) -> None:
        self._turns = deque(self.queues)
        self._stopping = asyncio.Event()
        self._nap: asyncio.Task[bool] | None = None
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._claim_until_stopped(), name="pgjq claimer")

    def end(self) -> None:
        """Claim no more; a claim in progress is completed, a sleep is cut short."""
        self._stopping.set()
        self.room.set()
        if self._nap is not None:
            self._nap.cancel()

    async def wait(self, seconds: float) -> None:
        """Wait for the claim in progress, or for the end of the sleep.

        psycopg takes up to ten seconds to cancel a statement that the server does not answer. This stops waiting for
        that task.
        """
        await asyncio.wait([self._task], timeout=seconds)

    async def _claim_until_stopped(self) -> None:
        pause = BACKOFF
        while not self._stopping.is_set():
            try:
                if not await self._claim():
                    await self._sleep()
                pause = BACKOFF
                if self.limits is not None and self.limits.outcome is not None:
                    await self._end_by_itself(self.limits)
                    return
            except Exception as error:  # noqa: BLE001  (a claimer that dies would leave the worker idle)
                self.report(error)
                await within(pause, self._stopping.wait())
                pause = longer(pause)

    async def _end_by_itself(self, limits: WorkLimits) -> None:
        while len(self.in_flight):
            self.room.clear()
            await within(LOOK_SECONDS, self.room.wait())
        limits.reached()

    async def _claim(self) -> bool:
        """Claim once there is enough room for a claim; return whether more jobs may be due."""
        wanted = await self._wait_for_room()
        if self._stopping.is_set() or (self.limits is not None and self.limits.note(0, idle=False)):
            return True
        # In this order: a tick or a run that ends in between is seen by the claim.
        idle = self.caught_up() and not len(self.in_flight)
        sent, claim_id = time.monotonic(), randbits(63)
        try:
            jobs = await self.ops.claim(
                self._next_queues(), worker=self.worker, limit=wanted, policy=self.policy, claim_id=claim_id
            )
        except StorageUnavailableError:
            self.lost_claims.note(claim_id, sent)
            raise
        self.report.succeeded()
        self.take(jobs, sent)
        await asyncio.sleep(0)  # Lets handlers start before the next claim.
        is_over = self.limits is not None and self.limits.note(len(jobs), idle=idle)
        return is_over or len(jobs) == wanted

    def _next_queues(self) -> list[str]:
        queues = list(self._turns)
        if not self.strict:
            self._turns.rotate(-1)
        return queues

    async def _wait_for_room(self) -> int:
        while not self._stopping.is_set():
            # Slots of blocked handlers are counted one by one, so only if there is room without that.
            if self._room_in(self.executor.concurrency) and (room := self._room_in(self.executor.usable)):
                return min(room, CLAIM) if self.limits is None else self.limits.within(min(room, CLAIM))
            self.room.clear()
            await within(LOOK_SECONDS, self.room.wait())
        return 0

    def _room_in(self, slots: int) -> int:
        """Return how many runs to claim for this many slots; 0 if a claim is not worthwhile."""
        ahead = self.executor.prefetch_count(slots) if self.policy.heartbeat is not None else 0
        room = slots + ahead - len(self.in_flight)
        return room if room > ahead // 2 and not self.given_up else 0

    async def _sleep(self) -> None:
        """Sleep until there may be work, or until the stop of the worker wakes it."""
        if self._stopping.is_set():
            return
        if self.limits is not None and self.limits.limits.drain:
            self.room.clear()
            await within(DRAIN_LOOK, self.room.wait())
            return
        self._nap = self._loop.create_task(
            self.ops.wait_for_work(list(self.queues), ASLEEP, self.block_timeout), name="pgjq nap"
        )
        try:
            await self._nap
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
