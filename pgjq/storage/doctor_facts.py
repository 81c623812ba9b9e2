"""What `pgjq doctor` reads of a server, beside `Inspection`: values and their protocol.

A storage with a server of its own may have a method `examination()`; others are judged by their inspection alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server and this session; `skew` is the server's clock minus ours, in seconds."""

    version: str
    is_supported: bool
    schema_version: int
    expected_schema: int
    skew: float
    is_pooled: bool
    autovacuum: bool
    connections: int
    max_connections: int
    notification_queue: float
    login: str
    owns_schema: bool
    member_of: tuple[str, ...]
    roles: tuple[str, ...]
    public_functions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session, prepared transaction or slot that keeps vacuum from removing dead rows."""

    kind: str
    name: str
    login: str | None
    application: str | None
    state: str | None
    transactions_behind: int | None
    open_for: float | None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table that changes with every job."""

    name: str
    live_rows: int
    dead_rows: int
    bytes: int
    vacuumed_at: datetime | None
    autovacuum: bool


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """Indexes that the schema should have and has not, and those that PostgreSQL cannot use."""

    missing: tuple[str, ...]
    invalid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerSilence:
    """How long a worker has been silent, and how often it should report, in seconds."""

    worker: str
    heartbeat: float
    silent_for: float


@dataclass(frozen=True, slots=True)
class PutBackTask:
    """A task whose jobs workers put back uncounted; `times` is the most for one job."""

    queue: str
    task: str
    jobs: int
    times: int
    example: str


class Examination(Protocol):
    """Reads of one server."""

    async def server(self) -> ServerFacts:
        """Read the server, the session and the login."""
        ...

    async def receives_notifications(self, timeout: float) -> bool:
        """Return whether a notification arrives within `timeout` seconds."""
        ...

    async def snapshots(self) -> list[Snapshot]:
        """List the oldest snapshots, the one that has been open longest first."""
        ...

    async def tables(self) -> list[TableFacts]:
        """List the tables that change with every job."""
        ...

    async def indexes(self) -> IndexFacts:
        """Compare the indexes with those of the schema's files."""
        ...

    async def silences(self) -> list[WorkerSilence]:
        """List workers that were seen within a day, the longest silent first."""
        ...

    async def put_back(self) -> list[PutBackTask]:
        """List tasks that workers do not know, or that their functions snooze again and again."""
        ...
