"""Stories that once told storages apart, and what was mended."""

from __future__ import annotations

from datetime import timedelta

from pgjq.job import NewJob
from pgjq.testing.clock import START
from tests.storage_comparison.steps import (
    Advance,
    BulkOperation,
    Cancel,
    CreateQueue,
    Enqueue,
    JobOperation,
    QueueOperation,
    Scenario,
)

FOUND = {
    "a queue that gets a policy while it is empty stays paused, and as old as it is": Scenario(
        (
            Enqueue("two", NewJob("c", 1)),
            QueueOperation("two", "pause_queue"),
            JobOperation("two", "c", "delete_job"),
            Advance(1000),
            CreateQueue("two", {"policy": "key_strict_fifo"}),
        ),
        definitions=True,
    ),
    "a past run_at stays what it is in a slot of time": Scenario(
        (Enqueue("two", NewJob("b", 1, run_at=START - timedelta(seconds=100), debounce=30)),),
        definitions=True,
    ),
    "a bulk cancel counts the jobs that it cancelled": Scenario(
        (Enqueue("one", NewJob("a", 1)), Cancel("one", "a"), BulkOperation("cancel_many", "one")),
    ),
    "a retry is refused in the same words": Scenario(
        (
            CreateQueue("one", {"policy": "stately"}),
            Enqueue("one", NewJob("d", None, singleton_key="k")),
            Cancel("one", "d"),
            Enqueue("one", NewJob("c", 1, singleton_key="k")),
            JobOperation("one", "d", "retry"),
        ),
        definitions=True,
    ),
}
