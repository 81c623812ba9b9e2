"""Which PostgreSQL a command talks to: `--url`, else PGJQ_URL, else the embedded one."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from pgjq.embedded import EmbeddedServer, default_directory
from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Generator

WANTED = "postgresql://…, embedded: or embedded:///directory"


@contextmanager
def database(url: str | None) -> Generator[str]:
    """Give the connection string for what a URL names; an embedded server runs for as long as the block lasts."""
    if url is None:
        click.echo(f"no --url and no PGJQ_URL: the embedded PostgreSQL in {default_directory()}", err=True)
        url = "embedded:"
    if not _is_embedded(url):
        yield _for_postgres(url)
        return
    path = unquote(urlsplit(url).path)
    with EmbeddedServer.start(Path(path) if path else None) as server:
        yield server.conninfo


def shown(url: str) -> str:
    """Name a database to people: never with a password."""
    parts = urlsplit(url)
    if _is_embedded(url):
        return f"the embedded PostgreSQL in {unquote(parts.path) or default_directory()}"
    if not parts.scheme:
        return "the database that the connection string names"
    return f"database {unquote(parts.path.strip('/')) or 'of the default name'} on {parts.hostname or 'this machine'}"


def _is_embedded(url: str) -> bool:
    return urlsplit(url).scheme == "embedded"


def _for_postgres(url: str) -> str:
    """Return what libpq takes: a URL of its own, or a string of keywords and values."""
    if urlsplit(url).scheme in ("postgresql", "postgres") or ("=" in url and "://" not in url):
        return url
    raise ValidationError(f"{url.partition(':')[0]!r} is not a PostgreSQL: the URL must be {WANTED}")
