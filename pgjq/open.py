"""From a URL to a storage. Only the storage that the URL names is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from pgjq.errors import ValidationError
from pgjq.redaction import read_redacted, scheme_of

if TYPE_CHECKING:
    from pgjq.storage.base import Storage

SCHEMES = "postgresql://, redis://, rediss://, file:///directory, memory:, embedded: or embedded:///directory"


def open_storage(url: str) -> Storage:
    """Make the storage that a URL names; nothing is opened before its first use, but for `embedded:`.

    `embedded:` starts a real PostgreSQL (extra `embedded`) in the user's data directory, or in the directory that is
    named, and migrates it. It stops when the storage is closed and no other process uses it.
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(f"a storage's URL must be a str, not {type(url).__name__}")
    scheme = url.partition(":")[0].lower()
    if scheme.partition("+")[0] in ("postgresql", "postgres"):  # A driver, as SQLAlchemy's URLs have it, may follow.
        from pgjq.storage.postgres.storage import PostgresStorage

        return PostgresStorage(url)
    parts = read_redacted(lambda: urlsplit(url), url, "this is not a URL", ValueError)
    match parts.scheme:
        case "redis" | "rediss":
            from pgjq.storage.redis.storage import RedisStorage

            return RedisStorage(url)
        case "memory":
            from pgjq.storage.memory import MemoryStorage

            return MemoryStorage()
        case "file":
            from pgjq.storage.file.storage import FileStorage

            return FileStorage(_directory(parts))
        case "embedded":
            from pgjq.embedded_storage import EmbeddedStorage

            return EmbeddedStorage(embedded_directory(url))
        case _:
            raise ValidationError(f"unknown storage {scheme_of(url)!r}: the URL must start with {SCHEMES}")


def embedded_directory(url: str) -> Path | None:
    """Return the directory that a URL of an embedded server names; `embedded:` alone names none."""
    return None if url in ("embedded:", "embedded://") else Path(_directory(urlsplit(url)))


def _directory(parts: SplitResult) -> str:
    """Read a URL of a directory: it is on this machine, and its path is whole."""
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValidationError(
            f"a directory is named with three slashes, as {parts.scheme}:///var/lib/jobs, and without a host"
        )
    if parts.query or parts.fragment:
        raise ValidationError("a directory has no options; write %3F for ? and %23 for # in its name")
    return unquote(parts.path)
