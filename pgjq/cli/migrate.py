"""`pgjq migrate`: upgrade, downgrade or show a database's schema, or print its SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pgjq.cli.confirm import confirm
from pgjq.cli.formatting import document
from pgjq.cli.open_database import database, shown
from pgjq.cli.open_storage import with_output
from pgjq.migrate import Status, downgrade, find_open_database, statements, status
from pgjq.migrate import migrate as upgrade

if TYPE_CHECKING:
    from pgjq.cli.output import Output

OPEN_TO_ALL: Final = (
    "every login of this server may connect to database {0}, and a login that may connect can hold the advisory locks"
    " that pgjq uses (docs/roles.md, CONNECT): revoke connect on database {0} from public,"
    " and grant it to the logins that you made members of the roles"
)


@click.command()
@click.argument("action", type=click.Choice(["up", "down", "status", "sql"]), default="up")
@click.option("--url", envvar="PGJQ_URL", show_envvar=True, help="The database; without it, the embedded one.")
@click.option("--schema", default="pgjq", show_default=True, help="The schema that holds pgjq's tables.")
@click.option("--revision", help="Target revision (default: head for up and sql, base for down).")
@click.option("--roles", is_flag=True, help="For up and sql: create the roles, and grant their privileges.")
@click.option("--yes", is_flag=True, help="Do not ask before down.")
@with_output
def migrate(
    output: Output, *, action: str, url: str | None, schema: str, revision: str | None, roles: bool, yes: bool
) -> None:
    """Upgrade a database to the schema of this version of pgjq.

    \b
    up      upgrade; safe at every start, by any number of processes at once (the default)
    down    go back; to base, this removes every job
    status  show the revision; the exit code is 1 unless it is the newest
    sql     print the statements of an upgrade from nothing; no database is needed

    --roles creates the group roles pgjq_producer, pgjq_worker, pgjq_monitor, pgjq_spark and pgjq_admin (another
    schema's name comes first), also on a migrated database; later upgrades keep their privileges complete.

    \b
    Examples:
      pgjq migrate --roles --url postgresql://localhost/app
      PGJQ_URL=postgresql://localhost/app pgjq migrate status
      pgjq migrate sql --schema jobs | psql app
    """  # noqa: D301
    _check_roles(action, roles=roles)
    if action == "up":
        _up(output, url, schema, revision or "head", roles=roles)
    elif action == "down":
        _down(output, url, schema, revision or "base", yes=yes)
    elif action == "sql":
        _print_sql(output, schema, revision or "head", roles=roles)
    else:
        _show_status(output, url, schema, revision)


def _check_roles(action: str, *, roles: bool) -> None:
    if roles and action not in ("up", "sql"):
        raise click.UsageError(f"{action} takes no --roles: up makes them, and down takes their rights away")


def _print_sql(output: Output, schema: str, revision: str, *, roles: bool) -> None:
    sql = statements(schema, revision, roles=roles)
    click.echo(document({"schema": schema, "sql": sql}) if output.as_json else sql)


def _up(output: Output, url: str | None, schema: str, revision: str, *, roles: bool) -> None:
    with database(url) as conninfo:
        before = status(conninfo, schema).current
        upgrade(conninfo, schema, revision, roles=roles)
        after = status(conninfo, schema).current
        open_to_all = find_open_database(conninfo) if roles else None
    was = ", as before" if before == after else f", was at {_named(before)}"
    made = [f"{schema}_{role}" for role in ("producer", "worker", "monitor", "spark", "admin")] if roles else []
    facts = {"schema": schema, "revision": after, "before": before, **({"roles": made} if made else {})}
    output.say(f"schema {schema} is at {after}{was}", **facts)
    if made and not output.as_json:
        click.echo(f"its roles are {', '.join(made[:-1])} and {made[-1]}")
    if made and open_to_all is not None:
        click.echo(OPEN_TO_ALL.format(open_to_all), err=True)


def _down(output: Output, url: str | None, schema: str, revision: str, *, yes: bool) -> None:
    question = f"Take schema {schema} in {shown(url or 'embedded:')} back to {revision}? {_price(revision)}"
    confirm(question, yes=yes)
    with database(url) as conninfo:
        before = status(conninfo, schema).current
        downgrade(conninfo, schema, revision)
        after = status(conninfo, schema).current
    output.say(f"schema {schema} is at {_named(after)}", schema=schema, revision=after, before=before)


def _show_status(output: Output, url: str | None, schema: str, revision: str | None) -> None:
    if revision is not None:
        raise click.UsageError("status takes no --revision: it shows the current one and the newest")
    with database(url) as conninfo:
        found = status(conninfo, schema)
    sentence = f"schema {schema} is at {_named(found.current)}, the newest is {found.head}"
    output.say(sentence, schema=schema, revision=found.current, newest=found.head)
    if found.current != found.head:
        click.echo(_advice(found), err=True)
        raise click.exceptions.Exit(1)


def _advice(found: Status) -> str:
    if found.current is None:
        return "run: pgjq migrate"
    return f"run: pgjq migrate; if {found.current} is the newer of the two, upgrade pgjq instead"


def _price(revision: str) -> str:
    return "This removes every job." if revision == "base" else "What newer revisions added is lost."


def _named(revision: str | None) -> str:
    return revision or "no revision"
