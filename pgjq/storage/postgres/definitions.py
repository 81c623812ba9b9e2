"""Queue definitions and bulk commands on PostgreSQL.

The rules are in `sql/functions`: each method calls one function and turns its answer into a value or an error.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from psycopg import errors

from pgjq.errors import PolicyError, QueueNotFoundError, StorageError, StorageUnavailableError
from pgjq.policy import POLICIES
from pgjq.storage.base import SizeWarning
from pgjq.storage.postgres import literals, rows
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
            "policy": POLICIES.index(definition.policy),
            "partition": definition.partition,
            "warning_queue_size": definition.warning_queue_size,
            "options": json.dumps(definition.options) if definition.options else None,
        }
        match await self._change_queue("create_queue", params):
            case "no_dead_letter":
                raise _missing_dead_letter(definition.options)
            case "other_policy" | "other_partition" as other:
                what = other.removeprefix("other_")
                raise PolicyError(f"queue {name!r} exists with another {what}, which cannot be changed")
            case _:
                return

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        """See `Definitions`."""
        match await self._change_queue("update_queue", {"queue": name, "changes": json.dumps(changes)}):
            case "no_dead_letter":
                raise _missing_dead_letter(changes)
            case "unknown":
                raise _missing_queue(name)
            case _:
                return

    async def delete_queue(self, name: str) -> None:
        """See `Definitions`."""
        match await self._change_queue("delete_queue", {"queue": name}):
            case "unknown":
                raise _missing_queue(name)
            case "deleted":
                return
            case needed:
                other = needed.removeprefix("needed by ")
                raise PolicyError(f"queue {name!r} is the dead letter of {other!r}; give that one another first")

    async def queues(self, name: str | None = None) -> list[QueueInfo]:
        """See `Definitions`."""
        return [rows.queue_info(row) for row in await self._fetch("queues", {"queue": name})]

    async def pause(self, name: str, *, paused: bool) -> None:
        """See `Definitions`."""
        if not await self._fetch("pause", {"queue": name, "paused": paused}):
            raise _missing_queue(name)

    async def blocked_keys(self, name: str) -> list[str]:
        """See `Definitions`."""
        keys = [key for (key,) in await self._fetch("blocked_keys", {"queue": name})]
        if keys == [None]:
            raise PolicyError(f"queue {name!r} is not key_strict_fifo: nothing in it is blocked by failed jobs")
        if not keys and not await self.queues(name):
            raise _missing_queue(name)
        return keys

    async def cancel_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return len(await self._fetch("cancel", {"queue": queue, "ids": literals.texts(sorted(job_ids))}))

    async def retry_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        found = await self._fetch("retry_many", {"queue": queue, "ids": literals.texts(sorted(job_ids))})
        return sum(became == "queued" for _, became in found)

    async def redrive(self, queue: str, *, limit: int, to: str | None = None) -> int:
        """See `Definitions`."""
        if not await self.queues(queue):
            raise _missing_queue(queue)
        return (await self._fetch("redrive", {"queue": queue, "limit": limit, "target": to}))[0][0]

    async def observe(self, *, with_endings: bool = True) -> list[SizeWarning]:
        """See `Definitions`."""
        found = await self._fetch("record_queue_stats", {"with_endings": with_endings})
        await self._fetch("record_minutes")
        return [SizeWarning(queue, count, size) for queue, count, size, _ in found]

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


def _missing_queue(name: str) -> QueueNotFoundError:
    return QueueNotFoundError(f"there is no queue {name!r}; create_queue makes one")


def _missing_dead_letter(options: Mapping[str, Any]) -> QueueNotFoundError:
    return QueueNotFoundError(f"there is no queue {options['dead_letter']!r} for dead letters; create it first")
