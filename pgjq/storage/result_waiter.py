"""Wait for a job to end: a notification wakes the waiter, which reads the job's state.

A notification may come late, more than once or, behind a pooler, never. So the result is always read from the storage,
by a job number that no other job ever has. A subclass enqueues and reads; the waiting is the same for all storages.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageUnavailableError
from pgjq.job import LIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer
    from pgjq.storage.mailbox import Mailbox

# Pauses between two reads without notifications, or while the storage is unavailable: short at first, then a second.
SOON: Final = 0.05
SELDOM: Final = 1.0
# A waiter reads the job this often despite notifications: a lost one must not cost the whole timeout.
LOOK_SECONDS: Final = 10.0


class MailboxWaiter(ABC):
    """Waits for one job, for one caller; see `pgjq.storage.base.ResultWaiter`."""

    def __init__(self, box: Mailbox[Any]) -> None:
        self._box = box
        self._is_new = False  # A job that was just added has not ended: it is first read after a notification.

    @abstractmethod
    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue or join the job; set `_is_new` if it was added."""

    @abstractmethod
    async def join(self) -> bool:
        """Join the job that has the id now; return whether there is one."""

    @abstractmethod
    async def close(self) -> None:
        """Stop waiting."""

    @abstractmethod
    async def _read_state(self) -> Answer | None:
        """Read the job's state."""

    def _result_from(self, notifications: Sequence[Any]) -> Answer | None:  # noqa: ARG002
        """Return the result from a notification, if the storage puts it there."""
        return None

    @property
    def _receives_notifications(self) -> bool:
        """Whether notifications arrive reliably."""
        return True

    async def answer(self, timeout: float) -> Answer | None:
        """Wait until the job has ended."""
        until = time.monotonic() + timeout
        pause = SOON
        looked: Answer | None = None
        if self._is_new:
            received = await self._box.take(min(timeout, LOOK_SECONDS if self._receives_notifications else pause))
            if (told := self._result_from(received)) is not None:
                return told
        while True:
            trusted = self._receives_notifications
            try:
                looked = await self._read_state()
            except StorageUnavailableError:
                if time.monotonic() >= until:
                    raise
                trusted = False
            else:
                if looked is None or looked.state not in LIVE:
                    return looked
            left = until - time.monotonic()
            if left <= 0:
                return looked
            received = await self._box.take(min(left, LOOK_SECONDS if trusted else pause))
            if (told := self._result_from(received)) is not None:
                return told
            pause = SOON if received else min(pause * 1.5, SELDOM)
