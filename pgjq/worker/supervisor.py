"""Supervise several worker processes.

The supervisor is a process of its own with a single thread, so it can fork safely at any time. A worker that dies is
replaced: at once if it lived for a while, else after a pause that doubles.

How they end
* `stop` writes a byte into the pipe from the process that started the supervisor. The end of that pipe without a byte
  means that this process is gone. Either, or a signal, makes the supervisor stop its workers.
* Each worker has a pipe from the supervisor, which closes when the workers should stop, or when the supervisor is gone.
  It is not a signal: a signal to the whole process group, such as Ctrl-C, is the first signal for each process in it.
* A second signal, or the end of the process that called `stop` before `stop` returned, kills the workers. So does a
  stop that takes much longer than the grace: a handler may block the event loop that would stop its worker.
* A worker whose supervisor is gone gives its jobs the usual grace. A few seconds later it exits, even if it hangs: no
  process is left that could replace or kill it.
* The process that started the supervisor reads a pipe that the supervisor holds open. Its end without a `stop` means
  that the supervisor was killed: a thread then calls `lost`, and kills the workers that do not exit by themselves,
  because a handler holds the interpreter lock. `stop` waits for them.
* A worker may end by itself (`pgjq.worker.exit_conditions`), and its exit code says so: `RETIRED` is replaced at
  once, `DRAINED` is not. When all workers have drained, the supervisor ends with that code, and a thread calls
  `finished`.
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
# How long after a signal ended the supervisor `stop` is expected, if the signal went to the whole process group.
STOP_WITHIN = 5.0
GRACE = struct.Struct("d")
PID = struct.Struct("q")
# Exit codes of processes that ended by themselves.
RETIRED = 64
DRAINED = 65


@dataclass(slots=True)
class _ProcessSlot:
    """One worker process, or a vacancy."""

    pid: int | None = None
    lifeline: int = -1
    started: float = 0.0
    pause: float = PAUSE
    due: float = 0.0
    drained: bool = False

    def close_pipe(self) -> None:
        """Close the pipe to the process, which then stops."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


class Supervisor:
    """Keeps `count` processes running; each calls `work` with its stop request and the grace."""

    def __init__(
        self,
        count: int,
        work: Callable[[StopRequest, Callable[[], float | None]], int],
        logger: logging.Logger,
        *,
        grace: float,
        lost: Callable[[PgjqError], None],
        finished: Callable[[], None],
    ) -> None:
        self._slots = [_ProcessSlot() for _ in range(count)]
        self._work = work
        self._logger = logger
        self._default_grace = grace
        self._lost = lost
        self._finished = finished
        self._stopping = threading.Event()
        # Shared with all forked processes.
        self._grace = mmap.mmap(-1, GRACE.size)
        self._grace[:] = GRACE.pack(math.nan)
        self._pids = mmap.mmap(-1, PID.size * count)
        stop_pipe, self._lifeline = os.pipe()
        self._ended, self._alive = os.pipe()  # Ends with the supervisor.
        self._all_ended, self._any_alive = os.pipe()  # Ends with the supervisor and all workers.
        self._pid = _fork(lambda: self._supervise(stop_pipe))
        for fd in (stop_pipe, self._alive, self._any_alive):
            os.close(fd)
        self._watch = BackgroundThread("pgjq supervisor watch", self._wait_for_end)
        self._watch.start()

    def stop(self, grace: float | None) -> None:
        """Stop the workers and wait for them; by default each gives its jobs its own grace."""
        self._stopping.set()
        self._grace[:] = GRACE.pack(math.nan if grace is None else grace)
        with suppress(BrokenPipeError):  # The supervisor was killed, and its workers stop because of that.
            os.write(self._lifeline, b".")
        with suppress(ChildProcessError):  # The caller's own code has waited for all children.
            os.waitpid(self._pid, 0)
        self._watch.join()
        # Workers that outlived a killed supervisor; otherwise this returns at once.
        _is_ended(self._all_ended, self._grace_given() + 3 * LATE)
        for fd in (self._lifeline, self._ended, self._all_ended):
            os.close(fd)

    def _wait_for_end(self) -> None:
        """Wait for the supervisor's end, in the process that started it; report an unrequested one."""
        while not _is_ended(self._ended, TICK):
            self._watch.touch()
        status = self._exit_status()
        if status == DRAINED:
            self._finished()
            return
        # Ctrl-C reaches this process as well, which then is about to call `stop`.
        if not self._stopping.wait(STOP_WITHIN if status == 0 else 0):
            message = f"the supervisor of the worker processes (process {self._pid}) has ended, and its workers stop"
            self._lost(PgjqError(f"{message}: stop this worker and start it again"))
        if not _is_ended(self._all_ended, self._grace_given() + 2 * LATE):
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill the workers that have outlived their supervisor."""
        for (pid,) in PID.iter_unpack(self._pids[:]):
            with suppress(ProcessLookupError):
                if pid and os.getpgid(pid) == os.getpgid(0):  # Another process may have the number meanwhile.
                    os.kill(pid, signal.SIGKILL)

    def _exit_status(self) -> int | None:
        """Return the supervisor's exit status: 0 after a signal's request, None if it was killed."""
        try:
            ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # The caller's own code has waited for all children.
            return None
        return ended.si_status if ended is not None and ended.si_code == os.CLD_EXITED else None

    def _grace_given(self) -> float:
        grace = self._stop_grace()
        return self._default_grace if grace is None else grace

    def _supervise(self, stop_pipe: int) -> int:
        for fd in (self._lifeline, self._ended, self._all_ended):
            os.close(fd)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        requests = _StopRequests(stop_pipe)
        while not requests.to_stop:
            self._collect_ended()
            if all(slot.drained for slot in self._slots):
                return DRAINED
            self._fill(stop_pipe)
            requests.wait()
        self._end(requests)
        return 0

    def _fill(self, stop_pipe: int) -> None:
        now = time.monotonic()
        for number, slot in enumerate(self._slots):
            if slot.pid is None and not slot.drained and slot.due <= now:
                mine, slot.lifeline = os.pipe()
                slot.pid, slot.started = _fork(lambda mine=mine: self._run_worker(stop_pipe, mine)), now
                PID.pack_into(self._pids, number * PID.size, slot.pid)
                os.close(mine)

    def _run_worker(self, stop_pipe: int, mine: int) -> int:
        supervisor = os.getppid()
        os.close(stop_pipe)
        os.close(self._alive)
        for slot in self._slots:
            slot.close_pipe()
        # Before signals are unblocked: those that the supervisor blocked are for its children, too.
        asked = StopRequest()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        BackgroundThread("pgjq supervisor watch", lambda: self._stop_when_pipe_closes(supervisor, mine, asked)).start()
        return self._work(asked, self._stop_grace)

    def _stop_when_pipe_closes(self, supervisor: int, pipe: int, asked: StopRequest) -> None:
        """Stop this worker when its pipe closes; without a supervisor the stop is bounded."""
        os.read(pipe, 1)  # Unbounded: the kernel closes the pipe of a process that has ended in any way.
        asked.ask()
        while os.getppid() == supervisor:
            time.sleep(TICK)  # The supervisor waits for this process, or kills it.
        time.sleep(self._grace_given() + LATE)
        os._exit(1)

    def _stop_grace(self) -> float | None:
        (grace,) = GRACE.unpack(self._grace[:])
        return None if math.isnan(grace) else grace

    def _collect_ended(self) -> None:
        for slot in self._slots:
            if slot.pid is not None and (ended := os.waitpid(slot.pid, os.WNOHANG))[0]:
                slot.close_pipe()
                self._note_end(slot, os.waitstatus_to_exitcode(ended[1]))

    def _note_end(self, slot: _ProcessSlot, status: int) -> None:
        """Decide whether and when a worker that has ended is replaced."""
        extra = {"pid": slot.pid, "status": status}
        slot.pid, slot.due = None, time.monotonic()
        if status == DRAINED:
            slot.drained = True
            self._logger.info("worker process ended: nothing is due", extra=extra)
        elif status == RETIRED:
            self._logger.info("worker process has reached its limit, starting another", extra=extra)
        else:
            self._logger.warning("worker process ended, starting another", extra=extra)
            lived = time.monotonic() - slot.started
            slot.pause = PAUSE if lived >= LIVED else min(slot.pause * 2, LONGEST_PAUSE)
            slot.due += 0 if lived >= LIVED else slot.pause

    def _end(self, requests: _StopRequests) -> None:
        for slot in self._slots:
            slot.close_pipe()
        left = {slot.pid for slot in self._slots if slot.pid is not None}
        until = time.monotonic() + self._grace_given() + 2 * LATE
        while left := {pid for pid in left if not os.waitpid(pid, os.WNOHANG)[0]}:
            if requests.to_kill or time.monotonic() > until:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            requests.wait()


class _StopRequests:
    """Stop requests to the supervisor: signals, and the pipe from the process that started it."""

    def __init__(self, stop_pipe: int) -> None:
        self._stop_pipe = stop_pipe
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
        """Wait briefly for a request or for the end of a worker."""
        caught = signal.sigtimedwait(SIGNALS, TICK)
        self._signals += caught is not None and caught.si_signo != signal.SIGCHLD
        while not self._orphaned and select.select([self._stop_pipe], [], [], 0)[0]:
            if os.read(self._stop_pipe, 1):
                self._stopped = True
            else:
                self._orphaned = True


def _is_ended(pipe: int, timeout: float) -> bool:
    """Wait until a pipe to which nothing is written has ended; return whether it has."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def _fork(child: Callable[[], int]) -> int:
    """Fork; the child does its work and exits with its result, without exit handlers."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        status = child()
    except BaseException as error:  # noqa: BLE001  (an exception that leaves here would run the parent's code)
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)
