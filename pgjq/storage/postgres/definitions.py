"""Queue definitions and bulk commands on PostgreSQL.

The rules are in `sql/functions`: each method calls one function and turns its answer into a value or an error.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from psycopg import errors

from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.policy import Policy
from pgjq.storage import policy_errors
from pgjq.storage.base import SizeWarning
from pgjq.storage.postgres import array_literals, rows
from pgjq.storage.postgres.statements import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgjq.definition import Definition
    from pgjq.job import QueueInfo

# How long a change of a queue retries to get its locks, and the pause in which other transactions proceed.
PATIENCE = 20.0
PAUSE = 0.3


class PostgresDefinitions(Statements):
    """The part of `PostgresOperations` that manages queues."""

    async def create_queue(self, name: str, definition: Definition) -> None:
        """See `Definitions`."""
        params = {
            "queue": name,
            "policy": Policy(definition.policy).number,
            "partition": definition.partition,
            "warning_queue_size": definition.warning_queue_size,
            "options": json.dumps(definition.options) if definition.options else None,
        }
        match await self._change_queue("create_queue", params):
            case "no_dead_letter":
                raise policy_errors.no_dead_letter_queue(definition.options["dead_letter"])
            case "other_policy" | "other_partition" as other:
                what = other.removeprefix("other_")
                raise policy_errors.cannot_change(name, what)
            case _:
                return

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        """See `Definitions`."""
        match await self._change_queue("update_queue", {"queue": name, "changes": json.dumps(changes)}):
            case "no_dead_letter":
                raise policy_errors.no_dead_letter_queue(changes["dead_letter"])
            case "unknown":
                raise policy_errors.no_queue(name)
            case _:
                return

    async def delete_queue(self, name: str) -> None:
        """See `Definitions`."""
        match await self._change_queue("delete_queue", {"queue": name}):
            case "unknown":
                raise policy_errors.no_queue(name)
            case "deleted":
                return
            case needed:
                other = needed.removeprefix("needed by ")
                raise policy_errors.is_dead_letter_of(name, other)

    async def queues(self, name: str | None = None) -> list[QueueInfo]:
        """See `Definitions`."""
        return [rows.queue_info(row) for row in await self._fetch("queues", {"queue": name})]

    async def pause(self, name: str, *, paused: bool) -> None:
        """See `Definitions`."""
        if not await self._fetch("pause", {"queue": name, "paused": paused}):
            raise policy_errors.no_queue(name)

    async def blocked_keys(self, name: str) -> list[str]:
        """See `Definitions`."""
        keys = [key for (key,) in await self._fetch("blocked_keys", {"queue": name})]
        if keys == [None]:
            raise policy_errors.not_strict(name)
        if not keys and not await self.queues(name):
            raise policy_errors.no_queue(name)
        return keys

    async def cancel_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return len(await self._fetch("cancel", {"queue": queue, "ids": array_literals.texts(sorted(job_ids))}))

    async def retry_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        found = await self._fetch("retry_many", {"queue": queue, "ids": array_literals.texts(sorted(job_ids))})
        return sum(became == "queued" for _, became in found)

    async def redrive(self, queue: str, *, limit: int, to: str | None = None) -> int:
        """See `Definitions`."""
        if not await self.queues(queue):
            raise policy_errors.no_queue(queue)
        return (await self._fetch("redrive", {"queue": queue, "limit": limit, "target": to}))[0][0]

    async def observe(self, *, with_endings: bool = True) -> list[SizeWarning]:
        """See `Definitions`."""
        found = await self._fetch("record_queue_stats", {"with_endings": with_endings})
        return [SizeWarning(queue, count, size) for queue, count, size, _ in found if queue is not None]

    async def _change_queue(self, name: str, params: dict[str, Any]) -> str:
        """Call a function that changes a queue; repeat it while it cannot get its locks."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return (await self._fetch(name, params))[0][0]
            except StorageError as error:
                if not isinstance(error.__cause__, errors.LockNotAvailable):
                    raise
                if time.monotonic() > until:
                    raise StorageUnavailableError(
                        f"queue {params['queue']!r} is being used by a transaction that stays open; try again after it"
                    ) from error
            await self._run_blocking(lambda: time.sleep(PAUSE))
