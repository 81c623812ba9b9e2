"""Make docs/schema.md from the comments in a migrated database: `python -m docs.schema_page`.

`tests/docs/test_schema_page.py` compares the page with the schema.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import psycopg

import pgjq
from pgjq.embedded import EmbeddedServer

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "schema.md"
HEAD = """# SQL schema

What `pgjq migrate` creates in the schema `pgjq`, in the words of its comments, which psql shows: `\\d+`, `\\df+`.
Build on the views, and on the functions that [roles](roles.md) may call. The tables, and functions that are not listed
here, are pgjq's own: any migration may change them.
"""
EVERY_ROLE = "every role"
ROLES = {
    EVERY_ROLE: "Functions of every role",
    "pgjq_producer": "Functions of producers",
    "pgjq_worker": "Functions of workers",
    "pgjq_spark": "Functions of Spark",
    "pgjq_monitor": "Functions of monitors",
    "pgjq_admin": "Functions of admins",
}
GRANT = re.compile(r"grant execute on function\s+([^;]*?)\s+to\s+([^;]*?);")
DEFAULT = re.compile(r" DEFAULT (.+?)(?:::[a-z ]+(?:\[\])?)?$")

RELATIONS = """
    select c.relname, obj_description(c.oid, 'pg_class'),
        array(
            select a.attname from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            order by a.attnum
        )
    from pg_class as c
    where c.relnamespace = 'pgjq'::regnamespace and c.relkind = any(%s) and not c.relispartition
        and c.relname <> 'alembic_version'
    order by 1
"""
FUNCTIONS = """
    select p.proname, pg_get_function_arguments(p.oid), obj_description(p.oid, 'pg_proc')
    from pg_proc as p
    where p.pronamespace = 'pgjq'::regnamespace
    order by 1
"""


def make_page(connection: psycopg.Connection[Any]) -> str:
    """Return the page for the schema of a database."""
    callers = _first_callers()
    functions = connection.execute(FUNCTIONS).fetchall()
    parts = [HEAD, _relations(connection, "Views", ["v"])]
    for role, title in ROLES.items():
        rows = [(_call(name, given), text) for name, given, text in functions if callers.get(name) == role]
        parts.append(_table(title, ("function", "what it does"), rows))
    parts.append(_relations(connection, "Tables", ["r", "p"]))
    return "\n".join(parts)


def _call(name: str, arguments: str) -> str:
    """Return how to call a function: its arguments, with their defaults in short."""
    given = [
        DEFAULT.sub(r" = \1", text).lower() for text in arguments.split(", ") if text and not text.startswith("OUT ")
    ]
    return f"`{name}({', '.join(given)})`"


def _first_callers() -> dict[str, str]:
    """Return the first role that may call each function, as `sql/roles/grant.sql` grants it."""
    callers: dict[str, str] = {}
    for names, roles in GRANT.findall((ROOT / "sql" / "roles" / "grant.sql").read_text()):
        for name in re.findall(r"pgjq\.(\w+)", names):
            first, *others = (role.strip() for role in roles.split(","))
            callers.setdefault(name, EVERY_ROLE if len(others) == len(ROLES) - 2 else first)
    return callers


def _relations(connection: psycopg.Connection[Any], title: str, kinds: list[str]) -> str:
    found = connection.execute(RELATIONS, [kinds]).fetchall()
    rows = [(f"`{name}`", text, ", ".join(f"`{column}`" for column in columns)) for name, text, columns in found]
    return _table(title, (title.lower().removesuffix("s"), "a row is, or what it shows", "columns"), rows)


def _table(title: str, head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = ("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"## {title}\n\n" + "\n".join(cells) + "\n"


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.start(Path(folder)) as server:
        pgjq.migrate(server.conninfo)
        with psycopg.connect(server.conninfo) as connection:
            PAGE.write_text(make_page(connection))


if __name__ == "__main__":
    main()
