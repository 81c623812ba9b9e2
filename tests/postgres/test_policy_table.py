"""The table of policies: SQL and Python agree, and the planner inlines the predicates of SQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq.policy import Policy
from pgjq.storage.postgres.queries import resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.job import State

PREDICATES = ("limits_keys", "limits_queued", "is_serial", "may_lack_slot", "is_stately", "is_strict")
STATES: list[State] = ["queued", "processing", "failing"]


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("policy", Policy)
def test_sql_and_python_have_the_same_table_of_policies(connection: psycopg.Connection[Any], policy: Policy) -> None:
    for queue_id in (8 + policy.number, -80 + policy.number):
        assert Policy.of_queue(queue_id) is policy
        found = connection.execute(f"select {', '.join(f'pgjq.{name}({queue_id})' for name in PREDICATES)}").fetchone()
        assert found == tuple(getattr(policy, name) for name in PREDICATES)
        slots = connection.execute(
            "select array_agg(pgjq.policy_slot(%s, s::smallint) order by s) from generate_series(0, 2) as s", [queue_id]
        ).fetchone()
        assert slots is not None
        # The names of slots differ; which states share one does not.
        same = [[one is not None and one == other for one in slots[0]] for other in slots[0]]
        names = [policy.slot(state) for state in STATES]
        assert same == [[one is not None and one == other for one in names] for other in names]


def test_every_number_of_a_policy_is_in_one_file() -> None:
    """But for the constraint that a single enqueue plans each time: inlining would cost it too much."""
    counts = {path: path.read_text().count("& 7") for path in resources("sql").glob("*/*.sql")}
    found = {f"{path.parent.name}/{path.name}": count for path, count in counts.items() if count}
    del found["schema/0001_policies.sql"]
    assert found == {"schema/0001_jobs.sql": 1}


@pytest.mark.parametrize("name", PREDICATES)
def test_a_predicate_is_inlined(connection: psycopg.Connection[Any], name: str) -> None:
    # An index whose condition is the predicate would hide it from the plan.
    for way in ("indexscan", "indexonlyscan", "bitmapscan"):
        connection.execute(f"set enable_{way} = off")
    plan = "".join(line for (line,) in connection.execute(f"explain select from pgjq.job where pgjq.{name}(queue_id)"))
    assert "queue_id & 7" in plan
    assert name not in plan


@pytest.mark.parametrize(
    ("index", "condition"),
    [
        ("job_policy_slot", "pgjq.limits_keys(queue_id) and pgjq.policy_slot(queue_id, state) = 1"),
        ("job_key_due", "pgjq.is_serial(queue_id) and ready and not blocked"),
        ("job_key_order", "pgjq.is_strict(queue_id) and seq > 0"),
    ],
)
def test_a_predicate_matches_its_index(connection: psycopg.Connection[Any], index: str, condition: str) -> None:
    of_key = "queue_id = 8 and coalesce(singleton_key, '') = 'k'"
    with connection.transaction(force_rollback=True):
        connection.execute("set local enable_seqscan = off")
        # It matches the second condition, too, and which of two indexes is cheaper depends on what is in the table.
        connection.execute("drop index pgjq.job_ready")
        rows = connection.execute(f"explain select from pgjq.job where {of_key} and {condition}")
        plan = "".join(line for (line,) in rows)
    used = re.search(r"Scan using (\w+)", plan)
    assert used is not None, plan
    assert connection.execute(
        "select inhparent::regclass::text from pg_inherits where inhrelid = %s::regclass", [f"pgjq.{used[1]}"]
    ).fetchone() == (f"pgjq.{index}",)
