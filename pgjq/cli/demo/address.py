"""Where the demo runs: any storage's URL, or a connection string of PostgreSQL's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pgjq.open import open_storage
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from pgjq.storage.base import Storage


def is_postgres(address: str) -> bool:
    """Tell whether a PostgreSQL is meant, which may have to be started and migrated first."""
    return urlsplit(address).scheme in ("", "postgresql", "postgres", "embedded")


def storage_at(address: str) -> Storage:
    """Make the storage, in the demo's process and in its workers'."""
    return PostgresStorage(address) if is_postgres(address) else open_storage(address)
