"""The storage of a command: `--url`, else PGJQ_URL, else embedded, reported on stderr."""

from __future__ import annotations

import functools
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.open_database import database, is_postgres
from pgjq.cli.output import Output
from pgjq.client import Client
from pgjq.errors import ValidationError
from pgjq.migrate import migrate
from pgjq.open import open_storage
from pgjq.serde import JsonSerde
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.storage.base import Storage

SCHEMA: Final = "pgjq"


class _Readable(JsonSerde):
    """Results as JSON; results of other serdes stay bytes, shown as base64."""

    def deserialize(self, data: bytes) -> Any:
        try:
            return super().deserialize(data)
        except ValueError:
            return data


@contextmanager
def open_named(url: str | None, schema: str) -> Generator[Storage]:
    """Open the storage that a URL or a connection string names, and close it afterwards."""
    if url is not None and not is_postgres(url):
        with closing(_open_other(url, schema)) as storage:
            yield storage
        return
    with database(url) as conninfo:
        if url is None or url.startswith("embedded:"):
            migrate(conninfo, schema)
        with closing(PostgresStorage(conninfo, schema=schema)) as storage:
            yield storage


def kind_of(storage: Storage) -> str:
    """Return a storage's kind for messages."""
    return type(storage).__name__.lstrip("_")


def with_address(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--url` and `--schema` to a command."""
    return _URL(_SCHEMA(command))


def with_storage(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--url` and `--schema` to a command, and pass the storage as first argument."""

    @functools.wraps(command)
    def opening(*args: Any, url: str | None, schema: str, **options: Any) -> None:
        with open_named(url, schema) as storage:
            command(storage, *args, **options)

    return with_address(opening)


def with_output(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--json` to a command, and pass the output as first argument."""

    @functools.wraps(command)
    def answering(*args: Any, as_json: bool, **options: Any) -> None:
        command(Output(as_json=as_json), *args, **options)

    return _JSON(answering)


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Add all of these options to a command, and pass a client and an output first."""

    @functools.wraps(command)
    def calling(output: Output, storage: Storage, **options: Any) -> None:
        command(Client(storage, result_serde=_Readable()), output, **options)

    return with_storage(with_output(calling))


_URL: Final = click.option(
    "--url",
    envvar="PGJQ_URL",
    show_envvar=True,
    help="The storage: postgresql://…, redis://…, file:///directory, embedded: or memory:; without it, embedded:.",
)
_SCHEMA: Final = click.option(
    "--schema", default=SCHEMA, show_default=True, help="In PostgreSQL, the schema that holds pgjq's tables."
)
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")


def _open_other(url: str, schema: str) -> Storage:
    storage = open_storage(url)
    if schema != SCHEMA:
        raise ValidationError("--schema is for PostgreSQL; other storages have none")
    if not storage.capabilities.processes:
        click.echo("memory: is empty when a command starts, and what it held is gone when it ends", err=True)
    return storage
