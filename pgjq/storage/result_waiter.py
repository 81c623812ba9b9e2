"""Waiting for one job: word comes into a mailbox, and then one looks for oneself.

What comes is a hint, and may come too late, too often, or, behind a pooler, never. The answer is what the storage says
when it is asked for the job by a name that no other job will ever have. An adapter brings how to enqueue and how to
look; the waiting is the same for all.
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

# How soon one looks again where no word comes, and where the storage is away: soon at first, then every second.
SOON: Final = 0.05
SELDOM: Final = 1.0
# A waiter looks this often although notifications come: one that was missed must not cost the whole timeout.
LOOK_SECONDS: Final = 10.0


class MailboxWaiter(ABC):
    """One caller's wait for one job; see `pgjq.storage.base.ResultWaiter`."""

    def __init__(self, box: Mailbox[Any]) -> None:
        self._box = box
        self._is_new = False  # A job that was just added has not ended: there is nothing to look at before word comes.

    @abstractmethod
    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue or join; an adapter says by `_is_new` that it added the job."""

    @abstractmethod
    async def close(self) -> None:
        """Stop waiting."""

    @abstractmethod
    async def _look(self) -> Answer | None:
        """Say how the job stands."""

    def _told(self, words: Sequence[Any]) -> Answer | None:  # noqa: ARG002
        """Read the answer itself from the word that came, where a storage puts it there."""
        return None

    @property
    def _hears(self) -> bool:
        """Whether word can be trusted to come."""
        return True

    async def answer(self, timeout: float) -> Answer | None:
        """Wait until the job has ended."""
        until = time.monotonic() + timeout
        pause = SOON
        looked: Answer | None = None
        if self._is_new:
            word = await self._box.take(min(timeout, LOOK_SECONDS if self._hears else pause))
            if (told := self._told(word)) is not None:
                return told
        while True:
            trusted = self._hears
            try:
                looked = await self._look()
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
            word = await self._box.take(min(left, LOOK_SECONDS if trusted else pause))
            if (told := self._told(word)) is not None:
                return told
            pause = SOON if word else min(pause * 1.5, SELDOM)
