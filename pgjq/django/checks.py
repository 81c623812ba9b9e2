"""System checks: the settings of each backend, and with `check --database` the schema.

| id | finding |
|---|---|
| pgjq.E001 | OPTIONS are invalid |
| pgjq.E002 | the database of OPTIONS is not in DATABASES |
| pgjq.E003 | that database is not PostgreSQL, and OPTIONS name no other storage |
| pgjq.E004 | Django reaches that database by psycopg2: pgjq needs psycopg 3 |
| pgjq.W001 | `pgjq.django` is not in INSTALLED_APPS: no migrations, no commands |
| pgjq.W002 | the jobs are in the memory of one process, and DEBUG is off |
| pgjq.W003 | the schema is missing or older than this pgjq; no error, because `migrate` runs the checks first |
"""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import connections

from pgjq.django.settings import schemas_of
from pgjq.django.storages import storage_here
from pgjq.errors import PgjqError, StorageError, ValidationError
from pgjq.options import check_queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgjq.django.backend import PgjqBackend


def check_settings(backend: PgjqBackend) -> list[Any]:
    """Check the settings of one backend."""
    try:
        return list(_findings(backend))
    except PgjqError as error:
        return [checks.Error(f"TASKS[{backend.alias!r}]: {error}", id="pgjq.E001")]


def _findings(backend: PgjqBackend) -> Iterator[Any]:
    own, where = backend.settings, f"TASKS[{backend.alias!r}]"
    for queue in backend.queues:
        check_queue(queue)
    _check_options(own.defaults)
    for options in own.tasks.values():
        _check_options(options)
    if not apps.is_installed("pgjq.django"):
        hint = 'Add "pgjq.django" to INSTALLED_APPS.'
        yield checks.Warning(f"{where} uses pgjq, whose app is not installed", hint=hint, id="pgjq.W001")
    if own.database not in settings.DATABASES:
        yield checks.Error(f"{where}: there is no database {own.database!r} in DATABASES", id="pgjq.E002")
    elif own.storage is None and connections[own.database].vendor != "postgresql":
        hint = 'Name a PostgreSQL database in OPTIONS["database"], or another storage in OPTIONS["storage"].'
        message = f"{where}: the database {own.database!r} is not PostgreSQL"
        yield checks.Error(message, hint=hint, id="pgjq.E003")
    elif own.storage is None and (driver := connections[own.database].Database.__name__) != "psycopg":
        hint = "Install psycopg 3 (pip install psycopg), and use an ENGINE that takes it, as Django's own does."
        message = f"{where}: the database {own.database!r} is reached by {driver}, and pgjq needs psycopg 3"
        yield checks.Error(message, hint=hint, id="pgjq.E004")
    if own.storage is not None:
        storage = storage_here(own)
        if not storage.capabilities.processes and not settings.DEBUG:
            message = f"{where}: the jobs live in the memory of each process, and no worker finds them"
            yield checks.Warning(message, hint='Leave out OPTIONS["storage"].', id="pgjq.W002")


def _check_options(options: Any) -> None:
    from pgjq.job_settings import settings as check_options
    from pgjq.tasks.call import TaskJob
    from pgjq.tasks.retrying import RULES, make_rule
    from pgjq.tasks.task import TEMPLATES

    make_rule(options, "", {})
    check_options(TaskJob(None, None, **{n: value for n, value in options.items() if n not in (*RULES, *TEMPLATES)}))


def check_schemas(app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any) -> list[Any]:
    """Check that the schemas in the databases are those of this pgjq."""
    del app_configs, kwargs
    found: list[Any] = []
    for alias in databases or ():
        for schema in schemas_of(alias):
            if connections[alias].vendor == "postgresql" and (problem := _schema_problem(alias, schema)):
                message = f"database {alias!r}, schema {schema!r}: {problem}"
                found.append(checks.Warning(message, hint="Run manage.py migrate.", id="pgjq.W003"))
    return found


def _schema_problem(alias: str, schema: str) -> str | None:
    from pgjq.django.schema import head, revision_of

    try:
        current = revision_of(connections[alias], schema)
    except (StorageError, ValidationError) as error:
        return str(error)
    return None if current == head() else f"revision {current or 'none'}, and this pgjq needs {head()}"
