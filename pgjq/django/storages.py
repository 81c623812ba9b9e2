"""The storage of a backend, and clients that use the current thread's Django connection.

A process that serves requests opens no connection for pgjq: jobs are enqueued, read and changed on Django's own
connection, inside its transaction, and in tests inside the test's. Only a worker opens connections: `worker_storage`
reads how from the settings of Django's connection, which name the test database during tests.
"""

# pyright: basic

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from django.db import connections

from pgjq.client import Client
from pgjq.open import open_storage
from pgjq.storage.postgres.conninfo import from_parameters
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from pgjq.django.settings import BackendSettings
    from pgjq.storage.base import Storage


def client_of(own: BackendSettings) -> Client:
    """Return a client on this thread's Django connection, or on the storage of the settings."""
    return Client(storage_here(own))


def storage_here(own: BackendSettings) -> Storage:
    """Return the storage for this thread: on its Django connection, or the one of the settings."""
    if own.storage is not None:
        return _shared(own.storage)
    return _unconnected(own.schema).on_connection(connections[own.database])


def worker_storage(own: BackendSettings, **options: Any) -> Storage:
    """Return a storage with connections of its own; the caller closes it, unless it is shared."""
    if own.storage is not None:
        return _shared(own.storage)
    return PostgresStorage(conninfo_of(own.database), schema=own.schema, **options)


def conninfo_of(database: str) -> str:
    """Return the connection string of a Django database; during tests, of the test database."""
    params = dict(connections[database].get_connection_params())
    role = params.pop("assume_role", None) or connections[database].settings_dict["OPTIONS"].get("assume_role")
    if role:
        params["options"] = f"{params.get('options') or ''} -c role={role}".strip()
    return from_parameters(params)


@cache
def _shared(url: str) -> Storage:
    return open_storage(url)


def forget(own: BackendSettings) -> None:
    """Drop the jobs of a memory storage, so that its next use finds it empty."""
    if own.storage is not None and not _shared(own.storage).capabilities.processes:
        _shared.cache_clear()


@cache
def _unconnected(schema: str) -> PostgresStorage:
    """Return a storage that is only used on Django's connections."""
    return PostgresStorage("", schema=schema)
