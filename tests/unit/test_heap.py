"""The heap of the model orders jobs, passes stale entries over, and does not grow with them."""

from __future__ import annotations

from datetime import UTC, datetime

from pgjq.options import DEFAULT_SETTINGS
from pgjq.storage.model.heap import LEAST, Heap
from pgjq.storage.model.record import Record

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Shelf:
    """Jobs by number, and a heap of them."""

    def __init__(self) -> None:
        self.jobs: dict[int, Record] = {}
        self.heap: Heap[int] = Heap(lambda _key, seq: self.jobs.get(seq), self.jobs)

    def put(self, key: int, seq: int) -> None:
        self.jobs[seq] = Record(seq, "q", str(seq), b"", DEFAULT_SETTINGS, NOW, NOW)
        self.heap.push(key, seq)

    def take(self) -> int | None:
        first, popped = self.heap.first(), self.heap.pop()
        assert first is popped
        return None if popped is None else self.jobs.pop(popped.seq).seq


def test_jobs_come_by_key_and_then_by_number() -> None:
    shelf = Shelf()
    for key, seq in ((1, 4), (0, 3), (1, 2), (-1, 9)):
        shelf.put(key, seq)
    assert [shelf.take() for _ in range(5)] == [9, 3, 2, 4, None]


def test_stale_entries_are_passed_over() -> None:
    shelf = Shelf()
    for seq in range(5):
        shelf.put(0, seq)
    del shelf.jobs[0], shelf.jobs[2]
    assert [shelf.take() for _ in range(4)] == [1, 3, 4, None]
    assert len(shelf.heap) == 0


def test_stale_entries_behind_a_job_do_not_pile_up() -> None:
    shelf = Shelf()
    shelf.put(0, 0)
    for seq in range(1, 20 * LEAST):
        shelf.put(1, seq)
        del shelf.jobs[seq]
    assert len(shelf.heap) <= LEAST + 2
    assert shelf.take() == 0


def test_entries_of_one_job_do_not_pile_up() -> None:
    shelf = Shelf()
    for _ in range(20 * LEAST):
        shelf.put(0, 7)
    assert len(shelf.heap) <= LEAST + 2
    assert [shelf.take(), shelf.take()] == [7, None]


def test_many_jobs_are_all_kept() -> None:
    shelf = Shelf()
    for seq in range(5 * LEAST):
        shelf.put(-seq % 7, seq)
    taken = [shelf.take() for _ in range(5 * LEAST)]
    assert taken == sorted(range(5 * LEAST), key=lambda seq: (-seq % 7, seq))
