"""Which schemas this code works on: its own version, and the next one.

A deployment migrates first and restarts its processes afterwards, so old code runs on the new schema for a while. Every
revision raises `pgjq.schema_version()` by one, and keeps what the version before it uses (CONTRIBUTING.md).
"""

from __future__ import annotations

from typing import Final

from pgjq.errors import SchemaError
from pgjq.storage.postgres.error_translation import MIGRATE

SCHEMA_VERSION: Final = 1
NEXT_VERSION: Final = SCHEMA_VERSION + 1


def is_supported(version: int) -> bool:
    """Return whether this code works on a schema of that version."""
    return SCHEMA_VERSION <= version <= NEXT_VERSION


def check_version(version: int) -> None:
    """Raise an error for a schema version that this code does not support."""
    if version < SCHEMA_VERSION:
        raise SchemaError(f"the database's schema has version {version}, this code needs {SCHEMA_VERSION}: {MIGRATE}")
    if version > NEXT_VERSION:
        message = (
            f"the database's schema has version {version}, this code knows {SCHEMA_VERSION} and works on"
            f" {NEXT_VERSION}: upgrade pgjq"
        )
        raise SchemaError(message)
