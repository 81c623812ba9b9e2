"""What an operation opens and its caller closes: transaction, subscription, result waiter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pgjq.job import EnqueueResult, Event
    from pgjq.options import Submission
    from pgjq.storage.values import Answer


class JobTransaction(Protocol):
    """An open transaction. Leaving its block without `complete` rolls it back."""

    @property
    def connection(self) -> Any:
        """The connection for the handler's writes."""
        ...

    async def restart_idle_limit(self) -> None:
        """Count the time that the transaction is idle from now on: the lease has been renewed."""
        ...

    async def complete(self, result: bytes | None) -> None:
        """Complete the job inside the transaction; LeaseLostError if the lease is gone."""
        ...


class Subscription(Protocol):
    """A bounded stream of events: a slow reader loses the oldest, and `dropped` counts them."""

    @property
    def dropped(self) -> int:
        """How many events were lost because the reader was too slow."""
        ...

    async def next(self, timeout: float) -> list[Event]:
        """Wait up to `timeout` seconds for events; an empty list if none came."""
        ...

    async def close(self) -> None:
        """Stop listening."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events until the subscription is closed."""
        ...


class ResultWaiter(Protocol):
    """Waits for one job, for one caller.

    It is made before the job is enqueued, so that no notification is missed. It then waits for the job that `enqueue`
    added or found, even if its id gets a new job: after a cancel and a new enqueue, the result is `cancelled`. If it
    can, a storage sends notifications only for jobs that have a waiter.
    """

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue the job, or join it if it exists; return what `Operations.enqueue` returns."""
        ...

    async def join(self) -> bool:
        """Join the job that has this id now, without enqueueing one; return whether there is one."""
        ...

    async def answer(self, timeout: float) -> Answer | None:
        """Wait until the job has ended, at most `timeout` seconds, and return its state.

        None: the job was deleted or pruned. `expired`: its result or error can no longer be read. StorageError if the
        storage is closed meanwhile.
        """
        ...

    async def close(self) -> None:
        """Stop waiting. The job goes on."""
        ...
