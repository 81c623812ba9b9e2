"""Several worker processes and one that watches over them.

The supervisor is a process of its own with a single thread, so it can fork safely at any time. A worker that dies is
replaced, at once if it lived for a while, after a pause that doubles if not.

How they end
* `stop` writes a byte into the pipe between the process that started the supervisor and the supervisor. The end of that
  pipe without a byte says that this process is gone. Either, or a signal, makes the supervisor end its workers.
* Each worker has a pipe from the supervisor, which closes when the workers should stop, or when the supervisor is gone.
  It is no signal: a signal to the whole process group, such as Ctrl-C, is the first signal for each process in it.
* A second signal, or the end of the process that called `stop` before `stop` returned, kills the workers. So does a
  stop that takes much longer than the grace: a handler may block the event loop that would stop its worker.
* A worker whose supervisor is gone gives its jobs the usual grace. A few seconds later it exits, whatever hangs in it:
  no process is left that could replace or kill it.
* The process that started the supervisor reads a pipe that the supervisor holds open. Its end without a `stop` says
  that the supervisor was killed: `lost` is called then, on a thread, and `stop` waits for the workers that are left.
"""

from __future__ import annotations

import math
import mmap
import os
import select
import signal
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgjq.background import BackgroundThread
from pgjq.errors import PgjqError
from pgjq.worker.shutdown import StopRequest

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
LIVED = 10.0
PAUSE = 0.1
LONGEST_PAUSE = 10.0
TICK = 0.5
# How much longer than the grace a worker without a supervisor may take to stop; with one it may take twice as long.
LATE = 3.0
# How long after the supervisor was ended by a signal `stop` is expected, if the signal was for the whole process group.
STOP_WITHIN = 5.0
GRACE = struct.Struct("d")


@dataclass(slots=True)
class _Place:
    """One of the processes, or the gap that it left."""

    pid: int | None = None
    lifeline: int = -1
    started: float = 0.0
    pause: float = PAUSE
    due: float = 0.0

    def let_go(self) -> None:
        """Close the pipe to the process, which stops then."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


class Supervisor:
    """Keeps `count` processes running that each call `work`, with what asks it to stop and the grace given then."""

    def __init__(
        self,
        count: int,
        work: Callable[[StopRequest, Callable[[], float | None]], None],
        logger: logging.Logger,
        *,
        grace: float,
        lost: Callable[[PgjqError], None],
    ) -> None:
        self._places = [_Place() for _ in range(count)]
        self._work = work
        self._logger = logger
        self._usual_grace = grace
        self._lost = lost
        self._stopping = threading.Event()
        self._grace = mmap.mmap(-1, GRACE.size)  # Shared by all that are forked from here.
        self._grace[:] = GRACE.pack(math.nan)
        heir, self._lifeline = os.pipe()
        self._ended, self._alive = os.pipe()  # Ends with the supervisor.
        self._all_ended, self._any_alive = os.pipe()  # Ends with the supervisor and all workers.
        self._pid = _fork(lambda: self._supervise(heir))
        for fd in (heir, self._alive, self._any_alive):
            os.close(fd)
        self._watch = BackgroundThread("pgjq supervisor watch", self._notice_the_end)
        self._watch.start()

    def stop(self, grace: float | None) -> None:
        """End the workers and wait for them; unless told otherwise, each gives its jobs the grace it was made with."""
        self._stopping.set()
        self._grace[:] = GRACE.pack(math.nan if grace is None else grace)
        with suppress(BrokenPipeError):  # The supervisor was killed, and its workers stop for that.
            os.write(self._lifeline, b".")
        with suppress(ChildProcessError):  # The caller's own code has waited for all children.
            os.waitpid(self._pid, 0)
        self._watch.join()
        # Workers that outlived a supervisor that was killed; else this returns at once.
        _is_ended(self._all_ended, self._grace_given() + 3 * LATE)
        for fd in (self._lifeline, self._ended, self._all_ended):
            os.close(fd)

    def _notice_the_end(self) -> None:
        """Wait for the end of the supervisor, in the process that started it; tell of one that was not asked for."""
        while not _is_ended(self._ended, TICK):
            self._watch.touch()
        # Ctrl-C reaches this process as well, which is about to call `stop` then.
        if not self._stopping.wait(STOP_WITHIN if self._has_ended_by_itself() else 0):
            message = f"the supervisor of the worker processes (process {self._pid}) has ended, and its workers stop"
            self._lost(PgjqError(f"{message}: stop this worker and start it again"))

    def _has_ended_by_itself(self) -> bool:
        """Tell whether the supervisor did what a signal asked it for, and was not killed; `stop` waits for it."""
        try:
            ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # The caller's own code has waited for all children.
            return False
        return ended is not None and ended.si_code == os.CLD_EXITED and ended.si_status == 0

    def _grace_given(self) -> float:
        told = self._told_grace()
        return self._usual_grace if told is None else told

    def _supervise(self, heir: int) -> None:
        for fd in (self._lifeline, self._ended, self._all_ended):
            os.close(fd)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        orders = _Orders(heir)
        while not orders.to_stop:
            self._bury()
            self._fill(heir)
            orders.wait()
        self._end(orders)

    def _fill(self, heir: int) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.pid is None and place.due <= now:
                mine, place.lifeline = os.pipe()
                place.pid, place.started = _fork(lambda mine=mine: self._be_worker(heir, mine)), now
                os.close(mine)

    def _be_worker(self, heir: int, mine: int) -> None:
        supervisor = os.getppid()
        os.close(heir)
        os.close(self._alive)
        for place in self._places:
            place.let_go()
        asked = (
            StopRequest()
        )  # Before signals come through: those that the supervisor blocked are for its children, too.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        BackgroundThread("pgjq supervisor watch", lambda: self._ask_at_end(supervisor, mine, asked)).start()
        self._work(asked, self._told_grace)

    def _ask_at_end(self, supervisor: int, pipe: int, asked: StopRequest) -> None:
        """Ask this worker to stop when its pipe closes; one whose supervisor is gone has a bound for that."""
        os.read(pipe, 1)  # Without a bound: the kernel closes the pipe of a process that has ended, whatever ended it.
        asked.ask()
        while os.getppid() == supervisor:
            time.sleep(TICK)  # The supervisor waits for this process, or kills it.
        time.sleep(self._grace_given() + LATE)
        os._exit(1)

    def _told_grace(self) -> float | None:
        (grace,) = GRACE.unpack(self._grace[:])
        return None if math.isnan(grace) else grace

    def _bury(self) -> None:
        for place in self._places:
            if place.pid is not None and (ended := os.waitpid(place.pid, os.WNOHANG))[0]:
                place.let_go()
                lived = time.monotonic() - place.started
                self._logger.warning(
                    "worker process ended, starting another", extra={"pid": place.pid, "status": ended[1]}
                )
                place.pause = PAUSE if lived >= LIVED else min(place.pause * 2, LONGEST_PAUSE)
                place.pid, place.due = None, time.monotonic() + (0 if lived >= LIVED else place.pause)

    def _end(self, orders: _Orders) -> None:
        for place in self._places:
            place.let_go()
        left = {place.pid for place in self._places if place.pid is not None}
        until = time.monotonic() + self._grace_given() + 2 * LATE
        while left := {pid for pid in left if not os.waitpid(pid, os.WNOHANG)[0]}:
            if orders.to_kill or time.monotonic() > until:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            orders.wait()


class _Orders:
    """What the supervisor was told: by signals, and through the pipe from the process that started it."""

    def __init__(self, heir: int) -> None:
        self._heir = heir
        self._signals = 0
        self._stopped = False
        self._orphaned = False

    @property
    def to_stop(self) -> bool:
        return self._signals > 0 or self._stopped or self._orphaned

    @property
    def to_kill(self) -> bool:
        return self._signals > 1 or (self._stopped and self._orphaned)

    def wait(self) -> None:
        """Wait a moment for an order or for the end of a worker."""
        caught = signal.sigtimedwait(SIGNALS, TICK)
        self._signals += caught is not None and caught.si_signo != signal.SIGCHLD
        while not self._orphaned and select.select([self._heir], [], [], 0)[0]:
            if os.read(self._heir, 1):
                self._stopped = True
            else:
                self._orphaned = True


def _is_ended(pipe: int, timeout: float) -> bool:
    """Wait until a pipe has ended that nothing is written to; say whether it has."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def _fork(child: Callable[[], None]) -> int:
    """Fork; the child does its work and leaves without running what its parent registered for its own exit."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        child()
        status = 0
    except BaseException as error:  # noqa: BLE001  (what leaves here must not run the parent's code)
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)
