"""The doctor: check a storage, its workers and queues; say what to do about each finding.

`examine(storage)` reads and judges; `pgjq doctor` prints. The judgements are pure functions: `queue_checks.py` judges
workers, queues and jobs on every storage, `server_checks.py` judges a PostgreSQL server. A check whose read fails, such
as for missing rights, is a warning of its own and does not stop the others.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypeVar

from pgjq.doctor import queue_checks, server_checks
from pgjq.doctor.failure_groups import judge_failures
from pgjq.doctor.finding import Finding, Level, Thresholds, worst
from pgjq.errors import SchemaError, StorageError, StorageUnavailableError
from pgjq.generic_inspection import inspection_of
from pgjq.storage.inspection import JobSearch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pgjq.storage.base import Storage
    from pgjq.storage.doctor_facts import Examination
    from pgjq.storage.inspection import FoundJob, Inspection

__all__ = ["Finding", "Level", "Thresholds", "examine", "recent_failures", "unusable", "worst"]

FAILURES: Final = 500
LIMIT: Final = 1000  # Queues, workers and stalled jobs that are looked at.

Facts = TypeVar("Facts")


async def examine(storage: Storage, thresholds: Thresholds | None = None) -> list[Finding]:
    """Return the findings of every check that the storage has the facts for.

    That a storage cannot be reached is a finding as well.
    """
    limits = thresholds or Thresholds()
    try:
        await storage.operations("async").queue_names()
    except StorageError as error:
        return unusable(error)
    found = [Finding("connection", "ok", f"{type(storage).__name__} answers")]
    own = getattr(storage, "examination", None)
    examination: Examination | None = None if own is None else own()
    if examination is not None:
        found += await _server(examination, limits)
    found += await _fleet(inspection_of(storage), examination, limits)
    return found


def unusable(error: StorageError) -> list[Finding]:
    """Return the findings about a storage that cannot be used."""
    if isinstance(error, SchemaError):
        reachable = Finding("connection", "ok", "the database answers")
        is_newer = str(error).endswith("upgrade pgjq")
        advice = "Upgrade pgjq here." if is_newer else 'Run "pgjq migrate" with this version of pgjq.'
        return [reachable, Finding("schema", "error", str(error), advice)]
    if isinstance(error, StorageUnavailableError):
        advice = "Check the URL, that the server runs, and that the network and its firewall let this machine in."
    else:
        advice = "Check the rights of this login: docs/roles.md has the roles, and pgjq_monitor may read all of this."
    return [Finding("connection", "error", str(error), advice)]


async def _server(reads: Examination, limits: Thresholds) -> list[Finding]:
    try:
        facts = await reads.server()
    except StorageError as error:
        return [_unread("roles", error)]
    return [
        *server_checks.judge_server(facts, limits, pgjq_version=version("pgjq")),
        *await _judged(
            "listen",
            reads.receives_notifications(limits.listen_timeout),
            lambda receives_notifications: server_checks.judge_listening(
                facts, limits, receives_notifications=receives_notifications
            ),
        ),
        *await _judged("snapshot", reads.snapshots(), lambda found: server_checks.judge_snapshots(found, limits)),
        *await _judged("vacuum", reads.tables(), lambda tables: server_checks.judge_tables(facts, tables, limits)),
        *await _judged("indexes", reads.indexes(), server_checks.judge_indexes),
    ]


async def _fleet(reads: Inspection, examination: Examination | None, limits: Thresholds) -> list[Finding]:
    try:
        workers = await reads.workers(LIMIT)
    except StorageError as error:
        return [_unread("workers", error)]
    found = [
        *await _judged("leader", reads.leaders(), lambda leaders: queue_checks.judge_leader(leaders, workers)),
        *await _judged("queues", reads.queues(limit=LIMIT), lambda q: queue_checks.judge_queues(q, workers, limits)),
        *await _judged("stalled", reads.stalled(LIMIT), lambda stalled: queue_checks.judge_stalled(stalled, limits)),
        *await _judged("blocked", reads.blocked(None, LIMIT), queue_checks.judge_blocked),
        *await _judged("failures", recent_failures(reads, limits.failure_age), judge_failures),
    ]
    if examination is None:
        return [*queue_checks.judge_workers(workers), *found]
    return [
        *await _judged(
            "workers", examination.silences(), lambda silences: queue_checks.judge_silences(silences, limits)
        ),
        *found,
        *await _judged("tasks", examination.put_back(), queue_checks.judge_tasks),
    ]


async def recent_failures(
    reads: Inspection, age: float, most: int = FAILURES, queue: str | None = None
) -> list[FoundJob]:
    """Read the `most` newest jobs that failed lately, and that wait for another attempt."""
    since = datetime.now(UTC) - timedelta(seconds=age)
    failed = await reads.search(JobSearch(queue=queue, state="failed", ended_after=since), None, most)
    failing = await reads.search(JobSearch(queue=queue, state="failing"), None, most)
    return [*failed.jobs, *failing.jobs]


async def _judged(check: str, reading: Awaitable[Facts], judge: Callable[[Facts], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(judge(await reading))
    except StorageError as error:
        return [_unread(check, error)]


def _unread(check: str, error: StorageError) -> Finding:
    return Finding(check, "warning", f"not checked: {error}", "Use a login in the role pgjq_monitor or pgjq_admin.")
