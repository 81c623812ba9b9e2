"""Check queue names that users type, and suggest similar names.

A queue exists once it was created or a job was enqueued into it; a queue that a live worker serves counts as well. The
check runs only for an empty result, so that commands that find something make no further statement. It is skipped for a
login that may not list queues, such as a producer's.
"""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.cli.command_group import Refusal
from pgjq.errors import QueueNotFoundError, StorageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from pgjq.cli.output import Output
    from pgjq.client import Client


def queue_names(client: Client) -> list[str]:
    """List the existing queues."""
    ops = client.storage.operations("sync")
    served = (queue for worker in drive(ops.workers()) if worker.alive for queue in worker.queues)
    return sorted({*drive(ops.queue_names()), *served})


def check_queue_exists(client: Client, name: str) -> None:
    """Refuse a name that no queue has; do nothing if this login may not list queues."""
    names = _names_if_allowed(client)
    if names is not None and name not in names:
        raise Refusal(f"there is no queue {name!r}{_hint(name, names)}")


@contextmanager
def existing_queue(client: Client, name: str) -> Generator[None]:
    """Add similar names to the error about a missing queue."""
    try:
        yield
    except QueueNotFoundError:
        check_queue_exists(client, name)
        raise


@contextmanager
def report_new_queue(client: Client, output: Output, name: str) -> Generator[None]:
    """Report on stderr if the block created a queue: its name may have been misspelled."""
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
