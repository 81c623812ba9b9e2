"""Claims under an old snapshot begin where the last one ended, and hide no job for long (ADR 21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq.storage.postgres.array_literals import texts
from pgjq.storage.postgres.claim_positions import LIMIT, LONGEST, MANY, ClaimPositions
from pgjq.storage.postgres.queries import Queries
from tests.postgres.test_plans import CLAIM, settling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUERIES = Queries("pgjq")
BACKLOG = 3 * MANY
SEQ, ID, WALKED = 2, 5, 16
ARGUMENTS = "'{q}', 1, 1, 30, 900, null, false"


class Claimer:
    """Claims and settles as a worker does, with a clock that the test moves."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.time = 0.0
        self.positions = ClaimPositions(lambda: self.time)

    def claim(
        self, limit: int, seconds: float = 1.0, queues: Sequence[str] = ("q",), *, settle: bool = True
    ) -> list[tuple[Any, ...]]:
        begun = self.positions.begin(queues)
        params = CLAIM | {"limit": limit, "after_ranks": begun.ranks, "after_seqs": begun.seqs}
        params["queues"] = texts(queues)
        found = self.connection.execute(QUERIES.psycopg("claim"), params).fetchall()
        if settle:
            self.connection.execute(QUERIES.psycopg("settle"), settling(found))
        self.time += seconds
        self.positions.end(begun, found, limit)
        return found


@pytest.fixture
def claimer(own_database: str) -> Iterator[Claimer]:
    """A claimer in a queue whose head is full of dead index entries that an old snapshot keeps."""
    with (
        psycopg.connect(own_database) as reader,
        psycopg.connect(own_database, autocommit=True) as connection,
    ):
        connection.execute(
            "select pgjq.enqueue_jobs('q', array_agg(n::text), array_agg('1'::bytea)) from generate_series(1, %s) n",
            [BACKLOG],
        )
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select count(*) from pgjq.job")
        claimer = Claimer(connection)
        claimer.claim(2 * MANY)
        assert claimer.positions.begin(["q"]).ranks is None
        assert claimer.claim(10)[0][WALKED] > 2 * MANY
        yield claimer


def enqueue(claimer: Claimer, job_id: str, priority: int, queue: str = "q") -> None:
    claimer.connection.execute(
        "select pgjq.enqueue_job(%s, %s, '1', jsonb_build_object('priority', %s::integer))", [queue, job_id, priority]
    )


def test_the_next_claim_reads_what_it_takes(claimer: Claimer) -> None:
    last = max(row[SEQ] for row in claimer.claim(10))
    found = claimer.claim(10)
    assert [row[SEQ] for row in found] == list(range(last + 1, last + 11))
    assert found[0][WALKED] <= 20


def test_a_job_before_the_position_is_taken_when_the_position_ends(claimer: Claimer) -> None:
    enqueue(claimer, "urgent", 9)
    assert "urgent" not in [row[ID] for row in claimer.claim(10, seconds=0.0)]
    claimer.time += LONGEST
    assert claimer.claim(10)[0][ID] == "urgent"


def test_a_claim_that_lacks_jobs_looks_from_the_head(claimer: Claimer) -> None:
    enqueue(claimer, "urgent", 9)
    found = claimer.claim(BACKLOG, seconds=0.0)
    assert "urgent" in [row[ID] for row in found]
    assert len(found) == MANY - 10 + 1
    assert claimer.positions.begin(["q"]).ranks is None


def test_a_position_lasts_ten_times_the_claim_that_made_it(claimer: Claimer) -> None:
    claimer.time += LONGEST
    claimer.claim(10, seconds=0.01)
    claimer.time += 0.09
    assert claimer.positions.begin(["q"]).ranks is not None
    claimer.time += 0.02
    assert claimer.positions.begin(["q"]).ranks is None


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [(0.01, 0.1), (0.4, 4.0), (1.0, LONGEST), (2.0, 8.0), (60.0, LIMIT)],
)
def test_a_position_lasts_longer_where_claims_from_the_head_are_slow(
    claimer: Claimer, seconds: float, lasts: float
) -> None:
    claimer.time += LIMIT
    claimer.claim(10, seconds=seconds)
    claimer.time += lasts - 0.001
    assert claimer.positions.begin(["q"]).ranks is not None
    claimer.time += 0.002
    assert claimer.positions.begin(["q"]).ranks is None


def test_a_queue_without_dead_entries_keeps_its_order_beside_one_that_has_them(claimer: Claimer) -> None:
    claimer.time += LIMIT
    claimer.connection.execute(
        "select pgjq.enqueue_jobs('clean', array_agg(n::text), array_agg('1'::bytea)) from generate_series(1, 20) n"
    )
    claimer.claim(BACKLOG)  # Ends the backlog of q; its dead entries stay.
    enqueue(claimer, "last", 0)
    found = claimer.claim(5, queues=["q", "clean"])
    assert [row[ID] for row in found] == ["last", "1", "2", "3", "4"]
    assert found[0][WALKED] > MANY > found[-1][WALKED]
    enqueue(claimer, "urgent", 9, queue="clean")
    assert claimer.claim(1, queues=["clean", "q"], seconds=0.0)[0][ID] == "urgent"


@pytest.mark.parametrize("way", ["retry", "delay", "pause", "rollback"])
def test_a_job_that_comes_back_before_the_position_is_hidden_no_longer_than_the_bound(
    claimer: Claimer, own_database: str, way: str
) -> None:
    claimer.time += LIMIT
    connection = claimer.connection
    with psycopg.connect(own_database) as other:
        if way == "rollback":
            ((job_id,),) = other.execute(f"select id from pgjq.claim({ARGUMENTS})").fetchall()  # noqa: S608
        else:
            job_id = claimer.claim(1, settle=False)[0][ID]
        claimer.claim(10)
        assert claimer.positions.begin(["q"]).ranks is not None
        if way == "rollback":
            other.rollback()
        else:
            connection.execute(
                "update pgjq.job set state = 0, ready = %s, run_at = now() - interval '1 s' where state = 1",
                [way != "delay"],
            )
        if way == "pause":
            connection.execute("update pgjq.queue set paused = true")
            assert claimer.claim(10, seconds=0.0) == []
            connection.execute("update pgjq.queue set paused = false")
            assert claimer.claim(10)[0][ID] == job_id  # A claim that finds nothing forgets the position.
            return
    assert job_id not in [row[ID] for row in claimer.claim(10, seconds=0.0)]
    claimer.time += LONGEST
    assert claimer.claim(10)[0][ID] == job_id
