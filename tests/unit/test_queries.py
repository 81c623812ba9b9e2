"""SQL from files: another schema's name in its place, parameters as the driver wants them, and nothing else changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq.storage.postgres.queries import Queries, render

in_any_time = running(deadline=None)

SQL = Path(__file__).parents[2] / "sql"
NAMES = sorted(path.stem for path in (SQL / "queries").glob("*.sql"))
schemas = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)

every_query = pytest.mark.parametrize("name", NAMES)


def identifier(schema: str) -> str:
    return '"' + schema.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@in_any_time
@given(schemas)
def test_a_name_becomes_a_quoted_identifier(schema: str) -> None:
    assert render("from pgjq.job, pgjq.body", schema) == f"from {identifier(schema)}.job, {identifier(schema)}.body"


@in_any_time
@given(schemas)
def test_the_start_of_a_string_becomes_the_name_as_text(schema: str) -> None:
    assert render("pg_notify('pgjq.wake', $1)", schema) == f"pg_notify({literal(schema + '.wake')}, $1)"


@in_any_time
@given(schemas)
def test_a_sequences_name_in_a_string_is_quoted_as_a_name_there(schema: str) -> None:
    expected = literal(identifier(schema) + ".job_seq")
    assert render("nextval('pgjq.job_seq')", schema) == f"nextval({expected})"


@in_any_time
@given(schemas)
def test_a_tables_name_in_a_string_is_quoted_as_a_name_there(schema: str) -> None:
    assert render("regclass('pgjq.job')", schema) == f"regclass({literal(identifier(schema) + '.job')})"


@in_any_time
@given(schemas)
def test_a_schemas_roles_are_named_after_it(schema: str) -> None:
    rendered = render("on schema pgjq to pgjq_worker; 'pgjq_admin'", schema)
    names = identifier(schema), identifier(schema + "_worker"), literal(schema + "_admin")
    assert rendered == "on schema {} to {}; {}".format(*names)


def test_the_usual_schema_changes_nothing() -> None:
    for path in SQL.glob("*/*.sql"):
        text = path.read_text(encoding="utf-8")
        assert render(text, "pgjq") == text


def test_other_words_that_end_in_the_name_are_left_alone() -> None:
    assert render("select my_pgjq.x, 'not pgjq'", "other") == "select my_pgjq.x, 'not pgjq'"


@in_any_time
@given(schemas)
def test_the_body_of_a_function_ends_where_it_did(schema: str) -> None:
    rendered = render("as $$ select pgjq.now() $$;", schema)
    match = re.fullmatch(r"as (\$\w*\$) select (.*)\.now\(\) \1;", rendered, re.DOTALL)
    assert match is not None
    assert match[2] == identifier(schema)
    assert match[1] not in match[2]


@every_query
def test_every_query_has_parameters_that_psycopg_takes(name: str) -> None:
    original = re.sub(r"^--.*\n", "", (SQL / "queries" / f"{name}.sql").read_text(encoding="utf-8"), flags=re.MULTILINE)
    wanted = re.findall(r"(?<!:):([a-z_]+)", original)
    statement = Queries("pgjq").psycopg(name).decode()
    assert re.findall(r"%\((\w+)\)s", statement) == wanted
    assert statement % {parameter: f":{parameter}" for parameter in wanted} == original.strip()


@every_query
def test_every_query_is_the_same_in_another_schema_but_for_its_name(name: str) -> None:
    usual = Queries("pgjq").psycopg(name).decode()
    odd = Queries("100% :id").psycopg(name).decode()
    assert odd.count('"100%% :id".') + odd.count("'100%% :id.") == usual.count("pgjq.")
    assert re.sub(r"'100%% :id([._])", r"'pgjq\1", odd.replace('"100%% :id"', "pgjq")) == usual


@every_query
def test_every_querys_header_says_what_it_is_for(name: str) -> None:
    first = (SQL / "queries" / f"{name}.sql").read_text(encoding="utf-8").splitlines()[0]
    assert re.match(r"-- \S", first)


def test_comments_for_people_are_not_sent_to_the_server() -> None:
    assert b"--" not in Queries("pgjq").psycopg("claim")


def test_channels_belong_to_their_schema() -> None:
    assert Queries("pgjq").channel("events") == "pgjq.events"
    assert Queries("My Jobs").channel("wake") == "My Jobs.wake"
