"""Create and upgrade pgjq's schema on a Django connection, inside its transaction.

The SQL is that of pgjq's own revisions (`pgjq.migrate`), so a database may be migrated by Django, by `pgjq migrate` or
by both: each finds what the other has done in `alembic_version`. A schema that an alembic project of yours migrates has
no such table, and is left alone.
"""

# pyright: basic

from __future__ import annotations

from functools import cache
from typing import Any, Final

from django.db.migrations.operations.base import Operation

from pgjq.django.settings import schemas_of
from pgjq.errors import SchemaError
from pgjq.migrate import downgrade_statements, newest_revision, upgrade_statements

# The transaction is Django's, and the schema is created here if it is missing: not every role may create one.
LEFT_OUT: Final = ("BEGIN;", "COMMIT;", "CREATE SCHEMA IF NOT EXISTS ")


class MigrateSchema(Operation):
    """An operation of a migration that takes the schemas of this database to a revision of pgjq."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, revision: str, before: str) -> None:
        self.revision = revision
        self.before = before

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Change no model: those of pgjq are unmanaged."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Upgrade."""
        del app_label, from_state, to_state
        for schema in _schemas(schema_editor.connection):
            upgrade(schema_editor, schema, self.revision)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Go back; to `base` deletes every job."""
        del app_label, from_state, to_state
        for schema in _schemas(schema_editor.connection):
            current = None if schema_editor.collect_sql else revision_of(schema_editor.connection, schema)
            if schema_editor.collect_sql or current is not None:
                text = downgrade_statements(schema, current or self.revision, self.before)
                _execute(schema_editor, schema, text)

    def describe(self) -> str:
        """Return what `migrate --plan` prints."""
        return f"Migrate pgjq's schema to revision {self.revision}"

    @property
    def migration_name_fragment(self) -> str:
        """The name of a migration with this operation."""
        return self.revision


def _schemas(connection: Any) -> list[str]:
    return schemas_of(connection.alias) if connection.vendor == "postgresql" else []


def upgrade(schema_editor: Any, schema: str, revision: str) -> None:
    """Upgrade one schema, after others that migrate it at this moment."""
    connection = schema_editor.connection
    if schema_editor.collect_sql:
        _execute(schema_editor, schema, upgrade_statements(schema, None, revision))
        return
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(hashtext(%s))", [f"pgjq.migrate.{schema}"])
        cursor.execute("select current_setting('server_encoding')")
        ((encoding,),) = cursor.fetchall()
        if encoding != "UTF8":
            raise SchemaError(f"the encoding of this database is {encoding}, and pgjq needs UTF8")
        cursor.execute("select from pg_namespace where nspname = %s", [schema])
        if not cursor.fetchall():
            cursor.execute(f"create schema {connection.ops.quote_name(schema)}")
    if _is_adopted(connection, schema):
        return
    current = revision_of(connection, schema)
    if current is None and _has_table(connection, schema, "alembic_version"):
        # What a downgrade to `base` leaves; the statements create it.
        schema_editor.execute(f"drop table {connection.ops.quote_name(schema)}.alembic_version")
    _execute(schema_editor, schema, upgrade_statements(schema, current, revision))


def _execute(schema_editor: Any, schema: str, text: str) -> None:
    lines = [line for line in text.splitlines() if not line.startswith(LEFT_OUT)]
    if not any(lines):
        return
    if schema_editor.collect_sql:
        schema_editor.execute(f"CREATE SCHEMA IF NOT EXISTS {schema_editor.connection.ops.quote_name(schema)}")
        schema_editor.execute("\n".join(lines).rstrip(";\n "), params=None)
        return
    # pgjq's migrations resolve names in a search_path of their own, and Django's later statements need theirs.
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("select current_setting('search_path')")
        ((path,),) = cursor.fetchall()
        cursor.execute("\n".join(lines))
        cursor.execute("select set_config('search_path', %s, true)", [path])


def revision_of(connection: Any, schema: str) -> str | None:
    """Return the revision of a schema; None if there is none."""
    if not _has_table(connection, schema, "alembic_version"):
        return None
    with connection.cursor() as cursor:
        cursor.execute(f"select version_num from {connection.ops.quote_name(schema)}.alembic_version")  # noqa: S608
        found = cursor.fetchone()
    return found and found[0]


def _is_adopted(connection: Any, schema: str) -> bool:
    return _has_table(connection, schema, "queue") and not _has_table(connection, schema, "alembic_version")


def _has_table(connection: Any, schema: str, table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select from pg_tables where schemaname = %s and tablename = %s", [schema, table])
        return cursor.fetchone() is not None


@cache
def head() -> str:
    """Return the newest revision of this pgjq."""
    return newest_revision()
