"""Bringing a database to the schema that this code speaks.

The revisions are alembic's, in `migrations/`; each is a thin file that runs SQL from `sql/`. `migrate()` and the
command line run them without a configuration file; `alembic upgrade head` in a checkout runs the very same; and an
alembic project of one's own can take them in as a branch (`docs/migrations.md`). Any number of processes may migrate
one database at the same time: an advisory lock lets one work and the others find it done.

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
from pgjq.storage.postgres.queries import check_schema_name, read, resources

if TYPE_CHECKING:
    from collections.abc import Generator

    from alembic.config import Config
    from sqlalchemy.engine import Connection, Engine

DRIVER = "postgresql+psycopg"


class Status(NamedTuple):
    """Where a database stands: its revision (None: no schema), and the newest that this code has."""

    current: str | None
    head: str


def migrate(conninfo: str, schema: str = "pgjq", revision: str = "head", *, roles: bool = False) -> None:
    """Upgrade the schema in a database to `revision`; safe to call at every start, by every process.

    With `roles`, the roles of producers, workers, monitors and admins are made, if they are not there, and given their
    rights (`docs/roles.md`). Once they have been, every upgrade sees to it that they keep what they need.
    """
    _run(conninfo, schema, "upgrade", revision, roles=roles)


def downgrade(conninfo: str, schema: str = "pgjq", revision: str = "base") -> None:
    """Take the schema back to an older revision. `base` removes every job with it."""
    _run(conninfo, schema, "downgrade", revision)


def status(conninfo: str, schema: str = "pgjq") -> Status:
    """Tell which revision a database has, and which one it should have."""
    config = _config(check_schema_name(schema))

    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    head = ScriptDirectory.from_config(config).get_current_head()
    with _engine(conninfo) as engine, engine.connect() as connection:
        check_ours(connection, schema)
        context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
        return Status(context.get_current_revision(), str(head))


def statements(schema: str = "pgjq", revision: str = "head", *, roles: bool = False) -> str:
    """Return the SQL that an upgrade of an empty database would run, for a reviewer or for psql."""
    config = _config(check_schema_name(schema))

    from alembic import command

    config.attributes["roles"] = _check_newest(revision, roles=roles)
    config.output_buffer = io.StringIO()
    with _known_revisions(revision):
        command.upgrade(config, revision, sql=True)
    return config.output_buffer.getvalue()


def run_sql(path: str) -> None:
    """Run a file below `sql/` inside a revision, in the schema that this migration is for."""
    from alembic import op

    # Alembic reads a string as SQLAlchemy's text, where a colon may begin a parameter.
    op.execute(read(path, current_schema()).replace(":", "\\:"))


def grant_roles() -> None:
    """Make the roles, and give them their rights, inside a revision of an alembic project of one's own."""
    run_sql("roles/grant.sql")


def has_roles(connection: Connection, schema: str) -> bool:
    """Tell whether a schema's roles have been given their rights."""
    from sqlalchemy import text

    # One role stands for all: they get the use of the schema together.
    query = """
        select from pg_namespace as n, aclexplode(n.nspacl) as a, pg_roles as r
        where n.nspname = :schema and r.oid = a.grantee and r.rolname = n.nspname || '_producer'
    """
    return connection.execute(text(query), {"schema": schema}).first() is not None


def find_open_database(conninfo: str) -> str | None:
    """Return the name of the database, as SQL writes it, if every login of its server may connect to it."""
    query = """
        select quote_ident(current_database())
        where has_database_privilege('public', current_database(), 'connect')
    """
    with _engine(conninfo) as engine, engine.connect() as connection:
        return connection.exec_driver_sql(query).scalar()


def create_schema() -> None:
    """Create the schema inside a revision. One that is there is enough: not every role may create one."""
    from alembic import context, op
    from sqlalchemy import inspect
    from sqlalchemy.schema import CreateSchema

    schema = current_schema()
    if context.is_offline_mode() or not inspect(op.get_bind()).has_schema(schema):
        op.execute(CreateSchema(schema, if_not_exists=True))


def check_ours(connection: Connection, schema: str) -> None:
    """Leave a schema alone whose revisions are kept by an alembic project of the user's own."""
    from sqlalchemy import inspect

    inspector = inspect(connection)
    if inspector.has_table("queue", schema=schema) and not inspector.has_table("alembic_version", schema=schema):
        message = (
            f"schema {schema!r} was migrated by an alembic project of your own: run that one's alembic upgrade heads"
        )
        raise SchemaError(message)


def check_encoding(connection: Connection) -> None:
    """Refuse a database in another encoding than UTF-8: names and errors may have any character.

    Tried without this check. In LATIN1 and EUC_JP the migration fails at characters in the comments of its files.
    Without these, jobs whose text is ASCII work. An id, a queue or a key with a character that the encoding lacks
    cannot be enqueued, and an error of a handler with one cannot be stored: the job fails with another error. In
    SQL_ASCII ids and errors work, but keys outside ASCII are refused, and some names of queues violate their check.
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
    """Name the schema that the running migration is for: the option `pgjq_schema` of alembic's configuration."""
    from alembic import context

    return check_schema_name(context.config.get_main_option("pgjq_schema") or "pgjq")


def versions_path() -> str:
    """Return the folder of the revisions, for `version_locations` in an alembic project of one's own."""
    return str(resources("migrations") / "versions")


def sqlalchemy_url(conninfo: str) -> Any:
    """Turn a connection string or URL into one for SQLAlchemy, with every parameter passed on to libpq."""
    from sqlalchemy.engine import URL

    from pgjq.storage.postgres.conninfo import parameters

    query = {name: str(value) for name, value in parameters(conninfo).items()}
    return URL.create(DRIVER, query=query | {"client_encoding": "utf8"})


def _check_extra() -> None:
    """Raise an error that names the extra unless alembic and SQLAlchemy are installed."""
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
        raise ValidationError(f"roles get their rights at the newest revision, not at {revision}: leave one out")
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
