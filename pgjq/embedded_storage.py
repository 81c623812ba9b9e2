"""Storage of `embedded:` URLs: PostgreSQL that pgjq starts, migrates and stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.embedded import EmbeddedServer
from pgjq.migrate import migrate
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from pathlib import Path


class EmbeddedStorage(PostgresStorage):
    """A PostgresStorage that starts and migrates its server on creation, and leaves it on close."""

    def __init__(self, directory: Path | None) -> None:
        self._server = EmbeddedServer.start(directory)
        migrate(self._server.conninfo)
        super().__init__(self._server.conninfo)

    def close(self) -> None:
        super().close()
        self._server.stop()
