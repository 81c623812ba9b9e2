"""Queue names as people type them: a name that no queue has is an error, with names that are close to it.

A queue exists once it was created or a job was enqueued into it; one that a live worker serves counts as well. Whether
a name exists is asked only when an answer is empty, so commands that find something make no further statement. A login
that may not list queues, such as a producer's, is not told.
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.cli.root import Refusal
from pgjq.errors import QueueNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from pgjq.cli.output import Output
    from pgjq.client import Client


def queue_names(client: Client) -> list[str]:
    """List the queues that exist."""
    ops = client.storage.operations("sync")
    served = (queue for worker in drive(ops.workers()) if worker.alive for queue in worker.queues)
    return sorted({*drive(ops.queue_names()), *served})


def check_queue_exists(client: Client, name: str) -> None:
    """Refuse a name that no queue has; say nothing if this login may not know."""
    names = _names_if_allowed(client)
    if names is not None and name not in names:
        raise Refusal(f"there is no queue {name!r}{_hint(name, names)}")


@contextmanager
def existing_queue(client: Client, name: str) -> Generator[None]:
    """Explain a queue that is not there with names that are close to it."""
    try:
        yield
    except QueueNotFoundError:
        check_queue_exists(client, name)
        raise


@contextmanager
def noting_a_new_queue(client: Client, output: Output, name: str) -> Generator[None]:
    """Say on stderr when what happens inside created a queue: its name may have been misspelled."""
    before = _names_if_allowed(client)
    try:
        yield
    finally:
        if before is not None and name not in before and name in (_names_if_allowed(client) or ()):
            output.note(f"created queue {name!r}: it did not exist{_hint(name, before)}")


def _names_if_allowed(client: Client) -> list[str] | None:
    try:
        return queue_names(client)
    except StorageError:
        return None


def _hint(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name, names)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
