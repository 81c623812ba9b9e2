"""`pgjq migrate`: the schema of a database, up, down, looked at, or as SQL to read."""

from __future__ import annotations

import click

from pgjq.cli.database import database, shown
from pgjq.migrate import Status, downgrade, statements, status
from pgjq.migrate import migrate as upgrade


@click.command()
@click.argument("action", type=click.Choice(["up", "down", "status", "sql"]), default="up")
@click.option("--url", envvar="PGJQ_URL", show_envvar=True, help="The database; without it, the embedded one.")
@click.option("--schema", default="pgjq", show_default=True, help="The schema that holds pgjq's tables.")
@click.option("--revision", help="Where to go: for up and sql, head by default; for down, base.")
@click.option("--roles", is_flag=True, help="For up and sql: make the roles, and give them their rights.")
@click.option("--yes", is_flag=True, help="Do not ask before down.")
def migrate(action: str, url: str | None, schema: str, revision: str | None, *, roles: bool, yes: bool) -> None:
    """Bring a database to the schema that this version of pgjq speaks.

    \b
    up      upgrade; safe at every start, by any number of processes at once (the default)
    down    go back; to base, this removes every job
    status  tell the revision; the exit code is 1 unless it is the newest
    sql     print the statements of an upgrade from nothing; no database is needed

    --roles makes the group roles pgjq_producer, pgjq_worker, pgjq_monitor and pgjq_admin (with another schema, its name
    comes first), on a database that has been migrated before as well; later upgrades keep their rights up to date.

    \b
    Examples:
      pgjq migrate --url postgresql://localhost/app
      pgjq migrate --roles --url postgresql://localhost/app
      PGJQ_URL=postgresql://localhost/app pgjq migrate status
      pgjq migrate sql --schema jobs | psql app
    """  # noqa: D301
    if roles and action not in ("up", "sql"):
        raise click.UsageError(f"{action} takes no --roles: up makes them, and down takes their rights away")
    match action:
        case "up":
            _up(url, schema, revision or "head", roles=roles)
        case "down":
            _down(url, schema, revision or "base", yes=yes)
        case "sql":
            click.echo(statements(schema, revision or "head", roles=roles))
        case _:
            _show_status(url, schema, revision)


def _up(url: str | None, schema: str, revision: str, *, roles: bool) -> None:
    with database(url) as conninfo:
        before = status(conninfo, schema).current
        upgrade(conninfo, schema, revision, roles=roles)
        after = status(conninfo, schema).current
    click.echo(f"schema {schema} is at {after}" + (", as before" if before == after else f", was at {_named(before)}"))
    if roles:
        click.echo(f"its roles are {schema}_producer, {schema}_worker, {schema}_monitor and {schema}_admin")


def _down(url: str | None, schema: str, revision: str, *, yes: bool) -> None:
    if not yes:
        _ask(f"Take schema {schema} in {shown(url or 'embedded:')} back to {revision}? {_price(revision)}")
    with database(url) as conninfo:
        downgrade(conninfo, schema, revision)
        click.echo(f"schema {schema} is at {_named(status(conninfo, schema).current)}")


def _show_status(url: str | None, schema: str, revision: str | None) -> None:
    if revision is not None:
        raise click.UsageError("status takes no --revision: it shows the current one and the newest")
    with database(url) as conninfo:
        found = status(conninfo, schema)
    click.echo(f"schema {schema} is at {_named(found.current)}, the newest is {found.head}")
    if found.current != found.head:
        click.echo(_advice(found), err=True)
        raise click.exceptions.Exit(1)


def _advice(found: Status) -> str:
    if found.current is None:
        return "run: pgjq migrate"
    return f"run: pgjq migrate; if {found.current} is the newer of the two, upgrade pgjq instead"


def _ask(question: str) -> None:
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)  # The answer that did not come would have ended the line.
        agreed = False
    if not agreed:
        raise click.ClickException("nothing was changed; --yes goes ahead without asking")


def _price(revision: str) -> str:
    return "This removes every job." if revision == "base" else "What newer revisions added is lost."


def _named(revision: str | None) -> str:
    return revision or "no revision"
