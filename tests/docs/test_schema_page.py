"""docs/schema.md is made from the comments in the database, and every object has one."""

from __future__ import annotations

import psycopg

import pgjq
from docs.schema_page import PAGE, make_page

UNCOMMENTED = """
    select p.oid::regprocedure::text from pg_proc as p
    where p.pronamespace = 'pgjq'::regnamespace and obj_description(p.oid, 'pg_proc') is null
    union all
    select c.oid::regclass::text from pg_class as c
    where c.relnamespace = 'pgjq'::regnamespace and c.relkind in ('v', 'r', 'p') and not c.relispartition
        and c.relname <> 'alembic_version' and obj_description(c.oid, 'pg_class') is null
"""


def test_every_function_view_and_table_has_a_comment(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.execute(UNCOMMENTED).fetchall() == []


def test_the_page_shows_the_comments_of_the_schema(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert PAGE.read_text() == make_page(connection), "run python -m docs.schema_page"


def test_comments_may_stand_in_a_schema_of_any_name(empty_database: str) -> None:
    pgjq.migrate(empty_database, 'it\'s "$$" mine')
    with psycopg.connect(empty_database) as connection:
        (comment,) = connection.execute('select obj_description(\'"it\'\'s ""$$"" mine".claim\'::regproc)').fetchone()  # type: ignore[misc]
    assert comment.startswith("Claim up to `limit` due jobs")
