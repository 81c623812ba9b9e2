"""Open the storage that a URL names, importing only that storage."""

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
    """Return the storage that a URL names; it connects on first use, except for `embedded:`.

    `embedded:` starts and migrates a real PostgreSQL (extra `embedded`) in the named directory, or else in the user's
    data directory. The server stops when the storage is closed and no other process uses it.
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(f"a storage's URL must be a str, not {type(url).__name__}")
    scheme = url.partition(":")[0].lower()
    if scheme.partition("+")[0] in ("postgresql", "postgres"):  # A driver may follow, as in SQLAlchemy's URLs.
        from pgjq.storage.postgres.storage import PostgresStorage

        return PostgresStorage(url)
    return _open(url, read_redacted(lambda: urlsplit(url), url, "this is not a URL", ValueError))


def _open(url: str, parts: SplitResult) -> Storage:
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
    """Return the directory in the URL of an embedded server; None for `embedded:` alone."""
    return None if url in ("embedded:", "embedded://") else Path(_directory(urlsplit(url)))


def _directory(parts: SplitResult) -> str:
    """Return the path of a directory URL, which must be absolute and on this machine."""
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValidationError(
            f"a directory is named with three slashes, as {parts.scheme}:///var/lib/jobs, and without a host"
        )
    if parts.query or parts.fragment:
        raise ValidationError("a directory has no options; write %3F for ? and %23 for # in its name")
    return unquote(parts.path)
