"""SELECT statements with literals, for other drivers that read very many rows.

A driver that streams the result of a `COPY` cannot pass parameters, so psycopg quotes the values into the statement. A
reader names the columns and conditions it wants; the planner leaves out the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, LiteralString, cast

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgjq.storage.postgres.queries import Queries

Operator = Literal["=", "<", ">=", "in"]

_CONDITIONS: Final[dict[Operator, sql.SQL]] = {
    "=": sql.SQL("v.{column} = {value}"),
    "<": sql.SQL("v.{column} < {value}"),
    ">=": sql.SQL("v.{column} >= {value}"),
    "in": sql.SQL("v.{column} = any({value})"),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row; unknown counts as false, as in SQL."""

    column: str
    operator: Operator
    value: Any = None


def write_select(
    queries: Queries, name: str, params: Mapping[str, Any], columns: Sequence[str], conditions: Sequence[Condition]
) -> str:
    """Return a SELECT of columns of a query of `sql/queries` where all conditions hold."""
    inner = sql.SQL(cast("LiteralString", queries.written(name, {key: write(value) for key, value in params.items()})))
    wanted = sql.SQL(", ").join([sql.SQL("v.{}").format(sql.Identifier(column)) for column in columns])
    statement = sql.SQL("select {} from (\n{}\n) as v").format(wanted or sql.SQL("1 as one"), inner)
    if conditions:
        statement += sql.SQL("\nwhere ") + sql.SQL(" and ").join([_condition(condition) for condition in conditions])
    return statement.as_string(None)


def write(value: Any) -> str:
    """Return a value as a literal."""
    return sql.Literal(value).as_string(None)


def _condition(condition: Condition) -> sql.Composed:
    return _CONDITIONS[condition.operator].format(
        column=sql.Identifier(condition.column), value=sql.Literal(condition.value)
    )
