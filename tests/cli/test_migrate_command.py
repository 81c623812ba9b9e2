"""`pgjq migrate`, against a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import pgjq
from pgjq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "pgjq_0001"


def run(*arguments: str, url: str | None = None, typed: str = "") -> Result:
    return CliRunner().invoke(main, arguments, input=typed, env={"PGJQ_URL": url})


def works(conninfo: str, schema: str = "pgjq") -> bool:
    """Say whether jobs can be enqueued there."""
    with pgjq.Client(pgjq.PostgresStorage(conninfo, schema=schema)) as client:
        try:
            return client.enqueue("mail", None, "hello").status == "queued"
        except pgjq.SchemaError:
            return False


def line(text: str) -> str:
    """Return the only line of a text."""
    (only,) = text.splitlines()
    return only


def test_migrating_makes_a_database_usable_and_says_where_it_is(empty_database: str) -> None:
    result = run("migrate", "--url", empty_database)
    assert (result.exit_code, line(result.stdout)) == (0, f"schema pgjq is at {HEAD}, was at no revision")
    assert works(empty_database)


def test_migrating_again_changes_nothing(empty_database: str) -> None:
    run("migrate", url=empty_database)
    assert works(empty_database)
    result = run("migrate", "up", url=empty_database)
    assert (result.exit_code, line(result.stdout)) == (0, f"schema pgjq is at {HEAD}, as before")
    with pgjq.Client(pgjq.PostgresStorage(empty_database)) as client:
        assert len(client.find_jobs()) == 1


def test_the_option_names_the_database_and_not_the_variable(empty_database: str) -> None:
    assert run("migrate", "--url", empty_database, url="postgresql://nowhere.invalid/x").exit_code == 0
    assert works(empty_database)


def test_another_schema_is_apart_from_the_usual_one(empty_database: str) -> None:
    name = "our-jobs"
    assert run("migrate", "--schema", name, url=empty_database).exit_code == 0
    assert run("migrate", "status", "--schema", name, url=empty_database).exit_code == 0
    assert run("migrate", "status", url=empty_database).exit_code == 1
    assert works(empty_database, schema=name)


def test_status_of_an_empty_database_says_what_to_run_and_fails(empty_database: str) -> None:
    result = run("migrate", "status", url=empty_database)
    assert (result.exit_code, line(result.stderr)) == (1, "run: pgjq migrate")
    assert line(result.stdout) == f"schema pgjq is at no revision, the newest is {HEAD}"


def test_status_of_a_migrated_database_succeeds_and_is_quiet(migrated: str) -> None:
    result = run("migrate", "status", url=migrated)
    assert (result.exit_code, result.stderr) == (0, "")
    assert line(result.stdout) == f"schema pgjq is at {HEAD}, the newest is {HEAD}"


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_going_down_asks_first_and_without_a_yes_changes_nothing(empty_database: str, typed: str) -> None:
    run("migrate", url=empty_database)
    result = run("migrate", "down", url=empty_database, typed=typed)
    assert result.exit_code == 1
    assert "removes every job" in result.stderr
    assert result.stderr.splitlines()[-1] == "Error: nothing was changed; --yes goes ahead without asking"
    assert works(empty_database)


@pytest.mark.parametrize(("options", "typed"), [([], "y\n"), (["--yes"], "")])
def test_going_down_removes_the_tables(empty_database: str, options: list[str], typed: str) -> None:
    run("migrate", url=empty_database)
    result = run("migrate", "down", *options, url=empty_database, typed=typed)
    assert (result.exit_code, line(result.stdout)) == (0, "schema pgjq is at no revision")
    assert not works(empty_database)
    assert run("migrate", url=empty_database).exit_code == 0
    assert works(empty_database)


def test_the_question_names_the_database_and_never_its_password() -> None:
    result = run("migrate", "down", url="postgresql://me:secret@db.example/shop?password=secret", typed="n\n")
    assert "database shop on db.example" in result.stderr
    assert "secret" not in result.output


def test_the_statements_need_no_database_and_name_the_schema() -> None:
    result = run("migrate", "sql", "--schema", "jobs", url="postgresql://nowhere.invalid/x")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "create table jobs.job" in result.stdout.replace('"', "")
    assert "pgjq." not in result.stdout.replace("pgjq.py", "")


def test_the_embedded_server_is_started_for_a_migration_and_keeps_it(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}"
    assert run("migrate", "--url", url).exit_code == 0
    assert run("migrate", "status", "--url", url).exit_code == 0


@pytest.mark.parametrize(
    ("url", "said", "code"),
    [
        ("redis://localhost", "'redis' is not PostgreSQL: the URL must be postgresql://", 2),
        ("memory:", "'memory' is not PostgreSQL", 2),
        ("somewhere", "'…' is not PostgreSQL", 2),
        ("postgresql://[::1/x", "connection string", 2),
        ("embedded://database", "named with three slashes, as embedded:///var/lib/jobs", 2),
        ("wrong=option", 'invalid connection option "wrong"', 2),
        ("postgresql:///x?host=/nowhere", "(look at --url or PGJQ_URL)", 1),
    ],
)
def test_a_url_that_leads_nowhere_is_one_line_that_says_what_to_do(url: str, said: str, code: int) -> None:
    result = run("migrate", "--url", url)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in line(result.stderr)


def test_revisions_are_told_in_json(empty_database: str) -> None:
    said = run("migrate", "--json", url=empty_database).stdout
    assert json.loads(said) == {"schema": "pgjq", "revision": HEAD, "before": None}
    said = run("migrate", "status", "--json", url=empty_database).stdout
    assert json.loads(said) == {"schema": "pgjq", "revision": HEAD, "newest": HEAD}
    said = run("migrate", "down", "--yes", "--json", url=empty_database).stdout
    assert json.loads(said) == {"schema": "pgjq", "revision": None, "before": HEAD}
    assert "create table" in json.loads(run("migrate", "sql", "--json").stdout)["sql"]


def test_debug_shows_the_error_itself() -> None:
    result = run("--debug", "migrate", "--url", "memory:")
    assert isinstance(result.exception, pgjq.ValidationError)


def test_a_revision_that_nobody_knows_is_one_line(empty_database: str) -> None:
    result = run("migrate", "--revision", "nonsense", url=empty_database)
    assert result.exit_code == 1
    assert "'nonsense'" in line(result.stderr)


def test_status_takes_no_revision(migrated: str) -> None:
    result = run("migrate", "status", "--revision", HEAD, url=migrated)
    assert result.exit_code == 2
    assert "status takes no --revision" in result.stderr
