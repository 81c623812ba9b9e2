"""Which PostgreSQL a command talks to: `--url`, else PGJQ_URL, else the embedded one."""

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
    """Give the connection string for what a URL names; an embedded server runs for as long as the block lasts."""
    if url is None:
        click.echo(f"no --url and no PGJQ_URL: the embedded PostgreSQL in {default_directory()}", err=True)
        url = "embedded:"
    if not _is_embedded(url):
        yield _for_postgres(url)
        return
    with EmbeddedServer.start(embedded_directory(url)) as server:
        yield server.conninfo


def is_postgres(url: str) -> bool:
    """Tell a URL of PostgreSQL, or libpq's keywords and values, from all others."""
    scheme = url.partition(":")[0].partition("+")[0]
    return scheme in ("postgresql", "postgres", "embedded") or ("=" in url and "://" not in url)


def shown(url: str) -> str:
    """Name a database to people: never with a password."""
    if _is_embedded(url):
        return f"the embedded PostgreSQL in {embedded_directory(url) or default_directory()}"
    said = parameters(url)
    return f"database {said.get('dbname') or 'of the default name'} on {said.get('host') or 'this machine'}"


def _is_embedded(url: str) -> bool:
    return url.startswith("embedded:")


def _for_postgres(url: str) -> str:
    """Return what libpq takes: a URL of its own, or a string of keywords and values."""
    if is_postgres(url):
        return url
    raise ValidationError(f"{scheme_of(url)!r} is not a PostgreSQL: the URL must be {WANTED}")
