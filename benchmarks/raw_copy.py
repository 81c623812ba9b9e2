"""The floor of a bulk enqueue: COPY into pgjq's own tables, indexes and all, without anything that makes it a queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.databases import connect, statement
from benchmarks.jobs import QUEUE
from benchmarks.measure import jobs_per_second

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

AT = "2026-01-01 00:00:00+00"


class Batch(NamedTuple):
    """The text of one transaction's two copies."""

    bodies: bytes
    jobs: bytes


class RawCopy:
    """A psycopg connection that copies."""

    def __init__(self, conninfo: str) -> None:
        self._connection = connect(conninfo)
        found = self._connection.execute("select pgjq.get_or_create_queue(%s)", (QUEUE,)).fetchone()
        assert found is not None
        self._queue_id: int = found[0]

    def rendered_rate(self, values: Sequence[dict[str, Any]], size: int) -> float:
        """Time nothing but the server and the sending: the text is there before the clock starts."""
        batches = list(self._batches(values, size))
        return self._rate(len(values), batches)

    def rate(self, values: Sequence[dict[str, Any]], size: int) -> float:
        """Time what begins with Python values, as a caller's does."""
        return self._rate(len(values), self._batches(values, size))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _rate(self, count: int, batches: Iterable[Batch]) -> float:
        self._connection.execute(statement("truncate"))
        return jobs_per_second(count, lambda: self._copy_all(batches))

    def _copy_all(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            with self._connection.transaction():
                self._copy("copy_body", batch.bodies)
                self._copy("copy_job", batch.jobs)

    def _copy(self, name: str, text: bytes) -> None:
        with self._connection.cursor() as cursor, cursor.copy(statement(name)) as copy:
            copy.write(text)

    def _batches(self, values: Sequence[dict[str, Any]], size: int) -> Iterator[Batch]:
        for start in range(0, len(values), size):
            numbered = list(enumerate(values[start : start + size], start))
            bodies = "".join([self._body(number, value) for number, value in numbered])
            jobs = "".join([f"{number}\t{self._queue_id}\t{AT}\tt\t0\t3\t3600\t604800\n" for number, _ in numbered])
            yield Batch(bodies.encode(), jobs.encode())

    def _body(self, number: int, value: dict[str, Any]) -> str:
        # As long as the ids that pgjq makes, and ascending like them.
        data = json.dumps(value, separators=(",", ":")).encode()
        return f"{number}\t{self._queue_id}\t{number:036x}\t\\\\x{data.hex()}\t{AT}\n"
