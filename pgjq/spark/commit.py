"""Commit of a write: create the jobs of all its stages, all or none, exactly once.

A large write uses two connections at once, because each keeps only one processor of the server busy: one adds most of
the bodies, the other everything else. If an id is taken, there is no second connection, or the login may only call
functions (the role `pgjq_spark`), nothing has been written yet, and the commit uses one connection.
`sql/functions/0001_bulk_writes.sql` explains why it is still all or none.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.policy import Policy
from pgjq.storage.postgres.oneshot import oneshot_connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.spark.options import Options
    from pgjq.storage.postgres.oneshot import OneShotConnection

LARGE: Final = 20_000  # Jobs; below, a second connection gains too little.


@dataclass(frozen=True)
class Write:
    """A write and its id."""

    queue: str
    stages: Sequence[str]
    expected: int
    write_id: str
    batch: int


class _TakenError(StorageError):
    """The write cannot use two connections, which do not wait for locks."""


def make_jobs(options: Options, write: Write) -> tuple[int, int, bool]:
    """Return how many jobs were added, how many existed, and whether the write was made before."""
    if write.expected >= LARGE:
        try:
            return _commit_large(options, write)
        except (_TakenError, StorageUnavailableError):
            pass  # Nothing was written; or it was, and the ledger has it.
    with oneshot_connection(options.conninfo, options.schema) as here:
        here.fetch("remove_orphan_bodies", {"queue": write.queue})
        ((jobs, duplicates, before),) = here.fetch("commit_write", asdict(write))
    return jobs, duplicates, before


def _commit_large(options: Options, write: Write) -> tuple[int, int, bool]:
    params = asdict(write)
    with oneshot_connection(options.conninfo, options.schema) as here:
        if not here.fetch("may_write")[0][0]:
            raise _TakenError("this login writes by functions, which use one connection")
        # Both connections must see the queue: else bodies might be left in one that was never created.
        here.fetch("reserve_numbers", params | {"count": 0})
        here.fetch("remove_orphan_bodies", params)
        with here.transaction():
            ((jobs, duplicates, queue_id, at, inherited),) = here.fetch("open_write", params)
            before = jobs is not None
            params |= {"queue_id": queue_id, "at": at, "options": inherited, "jobs": jobs, "duplicates": duplicates}
            if Policy.of_queue(queue_id).limits_queued:
                raise _TakenError("this queue's policy checks each job")
            if not before:
                params |= _enqueue_apart(options, here, params)
                here.fetch("quarantine_staged", params)
            here.fetch("close_write", params)
    return params["jobs"], params["duplicates"], before


def _enqueue_apart(options: Options, here: OneShotConnection, params: dict[str, Any]) -> dict[str, int]:
    """Add and commit most of the bodies over another connection, while this one does the rest."""

    def stop(bodies: Future[int]) -> None:
        if bodies.exception():
            here.cancel()

    with (
        oneshot_connection(options.conninfo, options.schema) as there,
        ThreadPoolExecutor(1) as beside,
        there.transaction(),
    ):
        bodies = beside.submit(_add_bodies, there, params, the_rest=False)
        bodies.add_done_callback(stop)
        try:
            ((jobs, duplicates),) = here.fetch("enqueue_staged", params)
            rest = _add_bodies(here, params, the_rest=True)
        finally:
            added = bodies.result()  # If both failed, this one was the cause.
        if added + rest != jobs:
            raise StorageError(f"{jobs} jobs have {added + rest} bodies; nothing was enqueued")
    return {"jobs": jobs, "duplicates": duplicates}


def _add_bodies(oneshot_connection: OneShotConnection, params: dict[str, Any], *, the_rest: bool) -> int:
    ((added,),) = oneshot_connection.fetch("add_bodies", params | {"the_rest": the_rest})
    if added is None:
        raise _TakenError("an id is taken, or another transaction is adding it")
    return added
