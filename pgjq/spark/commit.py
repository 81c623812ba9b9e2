"""The commit of a write: jobs of all that is on its stages, all or none, and once.

A large write goes over two connections at once, because each keeps but one processor of the server busy: one adds most
of the bodies, the other everything else. If an id turns out to be taken, or there is no second connection to be had,
nothing has happened, and it is made over one.
Why it is all or none nevertheless is said in `sql/functions/0001_stage.sql`.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.storage.postgres.oneshot import oneshot_connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.spark.options import Options
    from pgjq.storage.postgres.oneshot import OneShotConnection

LARGE: Final = 20_000  # Jobs; below, a second connection is not worth its while.
_REFUSING: Final = (1, 3, 4)  # Policies that may refuse a job, and that look at each of them.


@dataclass(frozen=True)
class Write:
    """What is to be made, and under which name."""

    queue: str
    stages: Sequence[str]
    expected: int
    write_id: str
    batch: int


class _TakenError(StorageError):
    """A write cannot be made over two connections, which wait for nobody."""


def make_jobs(options: Options, write: Write) -> tuple[int, int, bool]:
    """Return how many jobs were added, how many were there already, and whether all that had happened before."""
    if write.expected >= LARGE:
        try:
            return _make_jobs(options, write, large=True)
        except (_TakenError, StorageUnavailableError):
            pass  # Nothing has happened; or it has, and the ledger knows.
    return _make_jobs(options, write, large=False)


def _make_jobs(options: Options, write: Write, *, large: bool) -> tuple[int, int, bool]:
    params = asdict(write)
    with oneshot_connection(options.conninfo, options.schema) as here:
        if large:  # So that both connections know the queue: else bodies might be left in one that never came to be.
            here.fetch("reserve", params | {"count": 0, "copying": True})
        here.fetch("remove_leftovers", params)
        with here.transaction():
            ((jobs, duplicates, queue_id, at, inherited),) = here.fetch("open_write", params)
            before = jobs is not None
            params |= {"queue_id": queue_id, "at": at, "options": inherited, "jobs": jobs, "duplicates": duplicates}
            if not before and large and queue_id & 7 not in _REFUSING:
                params |= _enqueue_apart(options, here, params)
            elif not before:
                params |= _enqueue(here, params, apart=False)
            here.fetch("close_write", params)
    return params["jobs"], params["duplicates"], before


def _enqueue(here: OneShotConnection, params: dict[str, Any], *, apart: bool) -> dict[str, int]:
    ((jobs, duplicates),) = here.fetch("enqueue_staged", params | {"apart": apart})
    return {"jobs": jobs, "duplicates": duplicates}


def _enqueue_apart(options: Options, here: OneShotConnection, params: dict[str, Any]) -> dict[str, int]:
    """Have most of the bodies added, and committed, by another connection, while this one does the rest."""

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
            answer = _enqueue(here, params, apart=True)
            rest = _add_bodies(here, params, the_rest=True)
        finally:
            added = bodies.result()  # If both failed, this one was the reason.
        if added + rest != answer["jobs"]:
            raise StorageError(f"{answer['jobs']} jobs have {added + rest} bodies; nothing was enqueued")
    return answer


def _add_bodies(oneshot_connection: OneShotConnection, params: dict[str, Any], *, the_rest: bool) -> int:
    ((added,),) = oneshot_connection.fetch("add_bodies", params | {"the_rest": the_rest})
    if added is None:
        raise _TakenError("an id is taken, or somebody else is just adding it")
    return added
