"""Migrate a database to the schema that this code uses.

The revisions are alembic's, in `migrations/`; each is a thin file that runs SQL from `sql/`. `migrate()` and the
command line run them without a configuration file; `alembic upgrade head` in a checkout runs the same revisions; and
an application's alembic project can include them as a branch (`docs/migrations.md`). Any number of processes may
migrate one database at the same time: one works under an advisory lock, the others wait and find the result.

Alembic and SQLAlchemy come with the extra `migrate`. `import pgjq` imports this module, so its functions import these
two and psycopg when they are called.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from pgjq.errors import MissingExtraError, SchemaError, StorageError, StorageUnavailableError, ValidationError
from pgjq.redaction import read_redacted
from pgjq.storage.postgres.queries import check_schema_name, comments, read, render, resources

if TYPE_CHECKING:
    from collections.abc import Generator

    from alembic.config import Config
    from sqlalchemy.engine import Connection, Engine

DRIVER = "postgresql+psycopg"


class Status(NamedTuple):
    """The revision of a database (None: no schema), and the newest revision of this code."""

    current: str | None
    head: str


def migrate(conninfo: str, schema: str = "pgjq", revision: str = "head", *, roles: bool = False) -> None:
    """Upgrade a database's schema to `revision`; every process may call it at every start.

    With `roles`, it creates the missing roles of producers, workers, monitors, Spark and admins, and grants their
    privileges (`docs/roles.md`). Later upgrades keep these grants complete.
    """
    _run(conninfo, schema, "upgrade", revision, roles=roles)


def downgrade(conninfo: str, schema: str = "pgjq", revision: str = "base") -> None:
    """Take the schema back to an older revision. `base` deletes every job as well."""
    _run(conninfo, schema, "downgrade", revision)


def status(conninfo: str, schema: str = "pgjq") -> Status:
    """Return the revision of a database and the newest one of this code."""
    check_schema_name(schema)
    head = newest_revision()

    from alembic.runtime.migration import MigrationContext

    with _engine(conninfo) as engine, engine.connect() as connection:
        check_ours(connection, schema)
        context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
        return Status(context.get_current_revision(), head)


def newest_revision() -> str:
    """Return the newest revision of this code."""
    config = _config("pgjq")

    from alembic.script import ScriptDirectory

    return str(ScriptDirectory.from_config(config).get_current_head())


def statements(schema: str = "pgjq", revision: str = "head", *, roles: bool = False) -> str:
    """Return the SQL that an upgrade of an empty database runs, for review or for psql."""
    config = _config(check_schema_name(schema))

    from alembic import command

    config.attributes["roles"] = _check_newest(revision, roles=roles)
    config.output_buffer = io.StringIO()
    with _known_revisions(revision):
        command.upgrade(config, revision, sql=True)
    return config.output_buffer.getvalue()


def upgrade_statements(schema: str, start: str | None, revision: str) -> str:
    """Return the SQL that upgrades from one revision to another; None is an empty schema."""
    config = _config(check_schema_name(schema))

    from alembic.script import ScriptDirectory

    if start is None:
        return statements(schema, revision)
    with _known_revisions(revision):
        reached = {found.revision for found in ScriptDirectory.from_config(config).iterate_revisions(start, "base")}
        return "" if revision in reached else statements(schema, f"{start}:{revision}")


def downgrade_statements(schema: str, start: str, revision: str) -> str:
    """Return the SQL that downgrades from one revision to another; `base` deletes every job."""
    config = _config(check_schema_name(schema))

    from alembic import command

    config.output_buffer = io.StringIO()
    with _known_revisions(revision):
        command.downgrade(config, f"{start}:{revision}", sql=True)
    return config.output_buffer.getvalue()


def run_sql(path: str) -> None:
    """Run a file of `sql/` inside a revision, in its schema, and comment on what it defines."""
    from alembic import op

    text = read(path)
    # Alembic reads a string as SQLAlchemy text, in which a colon may start a parameter.
    op.execute(render(text + comments(text), current_schema()).replace(":", "\\:"))


def grant_roles() -> None:
    """Create the roles and grant their privileges, in a revision of your alembic project."""
    run_sql("roles/grant.sql")


def has_roles(connection: Connection, schema: str) -> bool:
    """Return whether a schema's roles have their privileges."""
    from sqlalchemy import text

    # Checking one role is enough: all of them get the use of the schema together.
    query = """
        select from pg_namespace as n, aclexplode(n.nspacl) as a, pg_roles as r
        where n.nspname = :schema and r.oid = a.grantee and r.rolname = n.nspname || '_producer'
    """
    return connection.execute(text(query), {"schema": schema}).first() is not None


def find_open_database(conninfo: str) -> str | None:
    """Return the quoted name of the database if every login of its server may connect to it."""
    query = """
        select quote_ident(current_database())
        where has_database_privilege('public', current_database(), 'connect')
    """
    with _engine(conninfo) as engine, engine.connect() as connection:
        return connection.exec_driver_sql(query).scalar()


def create_schema() -> None:
    """Create the schema in a revision unless it exists: not every role may create one."""
    from alembic import context, op
    from sqlalchemy import inspect
    from sqlalchemy.schema import CreateSchema

    schema = current_schema()
    if context.is_offline_mode() or not inspect(op.get_bind()).has_schema(schema):
        op.execute(CreateSchema(schema, if_not_exists=True))


def check_ours(connection: Connection, schema: str) -> None:
    """Refuse a schema whose revisions belong to an application's alembic project."""
    from sqlalchemy import inspect

    inspector = inspect(connection)
    if inspector.has_table("queue", schema=schema) and not inspector.has_table("alembic_version", schema=schema):
        message = (
            f"schema {schema!r} was migrated by an alembic project of your own: run that one's alembic upgrade heads"
        )
        raise SchemaError(message)


def check_encoding(connection: Connection) -> None:
    """Refuse a database in another encoding than UTF-8: names and errors may have any character.

    Tried without this check: in LATIN1 and EUC_JP the migration fails at characters in the comments of its files.
    Without these, jobs whose text is ASCII work. An id, a queue or a key with a character that the encoding lacks
    cannot be enqueued, and a handler's error with one cannot be stored: the job fails with another error. In
    SQL_ASCII ids and errors work, but keys outside ASCII are refused, and some queue names violate their check.
    Payloads and results are bytes, and work everywhere.
    """
    from sqlalchemy import text

    encoding = connection.execute(text("show server_encoding")).scalar_one()
    if encoding != "UTF8":
        message = (
            f"the encoding of this database is {encoding}, and pgjq needs UTF8: create another database with"
            " create database … encoding 'UTF8' template template0"
        )
        raise SchemaError(message)


def current_schema() -> str:
    """Return the schema of the running migration: `pgjq_schema` of alembic's configuration."""
    from alembic import context

    return check_schema_name(context.config.get_main_option("pgjq_schema") or "pgjq")


def versions_path() -> str:
    """Return the folder of the revisions, for `version_locations` of an alembic project."""
    return str(resources("migrations") / "versions")


def sqlalchemy_url(conninfo: str) -> Any:
    """Convert a connection string or URL for SQLAlchemy; every parameter is passed to libpq."""
    from sqlalchemy.engine import URL

    from pgjq.storage.postgres.conninfo import parameters

    query = {name: str(value) for name, value in parameters(conninfo).items()}
    return URL.create(DRIVER, query=query | {"client_encoding": "utf8"})


def _check_extra() -> None:
    """Raise an error with the extra's name unless alembic and SQLAlchemy are installed."""
    try:
        import_module("alembic")
        import_module("sqlalchemy")
    except ImportError as error:
        raise MissingExtraError("migrate", "migrating a PostgreSQL schema") from error


def _config(schema: str) -> Config:
    _check_extra()

    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(resources("migrations")))
    config.set_main_option("path_separator", "os")
    # ConfigParser would read a percent sign as the start of a reference.
    config.set_main_option("pgjq_schema", schema.replace("%", "%%"))
    return config


def _run(conninfo: str, schema: str, verb: str, revision: str, *, roles: bool = False) -> None:
    config = _config(check_schema_name(schema))

    from alembic import command

    config.attributes["roles"] = _check_newest(revision, roles=roles)
    with _known_revisions(revision), _engine(conninfo) as engine, engine.connect() as connection:
        config.attributes["connection"] = connection
        getattr(command, verb)(config, revision)


def _check_newest(revision: str, *, roles: bool) -> bool:
    if roles and revision not in ("head", "heads"):
        raise ValidationError(f"roles need the newest revision, not {revision}: leave out roles or revision")
    return roles


@contextmanager
def _known_revisions(wanted: str) -> Generator[None]:
    from alembic.util import CommandError

    try:
        yield
    except CommandError as error:
        message = f"cannot migrate to {wanted}: {error}; if a newer pgjq has been here, upgrade this one"
        raise SchemaError(message) from error


@contextmanager
def _engine(conninfo: str) -> Generator[Engine]:
    _check_extra()

    from sqlalchemy import create_engine
    from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
    from sqlalchemy.pool import NullPool

    what = "this is not a PostgreSQL connection string"
    engine = read_redacted(
        lambda: create_engine(sqlalchemy_url(conninfo), poolclass=NullPool), str(conninfo), what, ArgumentError
    )
    try:
        yield engine
    except OperationalError as error:
        message = f"cannot migrate: {error.orig}"
        raise StorageUnavailableError(message) from error
    except DBAPIError as error:
        message = f"cannot migrate: {str(error.orig).splitlines()[0]}"
        raise StorageError(message) from error
    finally:
        engine.dispose()
