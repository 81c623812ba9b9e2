"""The PostgreSQL database of a command: `--url`, else PGJQ_URL, else the embedded one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from pgjq.embedded import EmbeddedServer, default_directory
from pgjq.errors import ValidationError
from pgjq.open import embedded_directory
from pgjq.redaction import scheme_of
from pgjq.storage.postgres.conninfo import parameters

if TYPE_CHECKING:
    from collections.abc import Generator

WANTED = "postgresql://…, embedded: or embedded:///directory"


@contextmanager
def database(url: str | None) -> Generator[str]:
    """Yield the connection string for a URL; an embedded server runs during the block."""
    if url is None:
        click.echo(f"no --url and no PGJQ_URL: the embedded PostgreSQL in {default_directory()}", err=True)
        url = "embedded:"
    if not _is_embedded(url):
        yield _for_postgres(url)
        return
    with EmbeddedServer.start(embedded_directory(url)) as server:
        yield server.conninfo


def is_postgres(url: str) -> bool:
    """Return whether this is a PostgreSQL URL or a libpq keyword/value string."""
    scheme = url.partition(":")[0].partition("+")[0]
    return scheme in ("postgresql", "postgres", "embedded") or ("=" in url and "://" not in url)


def shown(url: str) -> str:
    """Return a database's name for messages, never with a password."""
    if _is_embedded(url):
        return f"the embedded PostgreSQL in {embedded_directory(url) or default_directory()}"
    said = parameters(url)
    return f"database {said.get('dbname') or 'of the default name'} on {said.get('host') or 'this machine'}"


def _is_embedded(url: str) -> bool:
    return url.startswith("embedded:")


def _for_postgres(url: str) -> str:
    """Return a URL or a keyword/value string that libpq accepts."""
    if is_postgres(url):
        return url
    raise ValidationError(f"{scheme_of(url)!r} is not PostgreSQL: the URL must be {WANTED}")
