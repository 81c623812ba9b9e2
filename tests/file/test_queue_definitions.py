"""Definitions of queues are in the directory: every process goes by them, and hears of what becomes of queues."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, FileStorage, JobError, LeasePolicy, PolicyError
from pgjq.blocking import drive
from pgjq.outcome import Failed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pgjq.testing import ManualClock

POLICY = LeasePolicy(lease=30, heartbeat=10)


@pytest.fixture
def other(directory: Path, storage: FileStorage, clock: ManualClock) -> Iterator[FileStorage]:
    """Another storage on the same directory, as if in another process."""
    del storage
    other = FileStorage(directory, clock=clock)
    yield other
    other.close()


def rewrite(storage: FileStorage) -> None:
    """Have the journal written anew."""
    with storage.replica._mutex:
        storage.replica._rewrite()


@pytest.mark.parametrize("anew", [False, True])
def test_every_process_goes_by_a_definition(storage: FileStorage, other: FileStorage, *, anew: bool) -> None:
    client = Client(storage)
    client.create_queue("letters")
    client.create_queue("q", policy="exclusive", retry_limit=0, dead_letter="letters", warning_queue_size=3)
    client.enqueue("q", "a", None, singleton_key="k")
    if anew:
        rewrite(storage)
    there = Client(other)
    assert there.get_queues() == client.get_queues()
    assert there.enqueue("q", "b", None, singleton_key="k").existing_state == "queued"
    (job,) = drive(other.operations("sync").claim(["q"], worker="ann", limit=1, policy=POLICY))
    assert job.max_attempts == 1
    drive(other.operations("sync").settle([Settlement(job.lease, Failed(JobError("E", "boom")))]))
    (letter,) = client.find_jobs("letters")
    assert letter.source is not None
    assert (letter.source.queue, letter.source.id, letter.source.error) == ("q", "a", JobError("E", "boom"))


@pytest.mark.parametrize("anew", [False, True])
def test_a_slot_of_time_is_taken_for_every_process(storage: FileStorage, other: FileStorage, *, anew: bool) -> None:
    Client(storage).enqueue("q", "a", None, singleton_seconds=60)
    if anew:
        rewrite(storage)
    there = Client(other)
    assert there.enqueue("q", "b", None, singleton_seconds=60).status == "duplicate"
    there.cancel("q", "a")
    assert Client(storage).enqueue("q", "c", None, singleton_seconds=60).status == "queued"
    there.retry("q", "a")
    there.delete_job("q", "c")
    assert there.enqueue("q", "d", None, singleton_seconds=60).status == "queued"


def test_a_sleeper_in_another_process_is_woken_when_a_queue_is_resumed(
    storage: FileStorage, other: FileStorage
) -> None:
    client = Client(storage)
    client.enqueue("q", "a", None)
    client.pause_queue("q")
    ops = other.operations("sync")
    assert not drive(ops.wait_for_work(["q"], 0.01))
    woken: list[bool] = []
    sleeper = threading.Thread(target=lambda: woken.append(drive(ops.wait_for_work(["q"], 30, poll=60))))
    sleeper.start()
    client.resume_queue("q")
    sleeper.join(20)
    assert woken == [True]


def test_a_warning_is_heard_in_another_process(storage: FileStorage, other: FileStorage) -> None:
    subscription = drive(other.operations("sync").subscribe("q"))
    client = Client(storage)
    client.create_queue("q", warning_queue_size=1)
    client.enqueue_many("q", [("a", None), ("b", None)])
    drive(storage.operations("sync").observe())  # pyright: ignore[reportAttributeAccessIssue]
    names: list[str] = []
    while "warning" not in names:
        events = drive(subscription.next(30))
        assert events
        names += [event.name for event in events]
    assert drive(other.operations("sync").observe()) == []  # pyright: ignore[reportAttributeAccessIssue]
    drive(subscription.close())


def test_a_refusal_changes_nothing_and_is_no_reason_to_read_everything_again(
    storage: FileStorage, directory: Path
) -> None:
    client = Client(storage)
    client.create_queue("q", policy="key_strict_fifo")
    before, jobs = (directory / "journal").read_bytes(), storage.replica._jobs
    with pytest.raises(PolicyError):
        client.enqueue_many("q", [("a", None)])
    assert (directory / "journal").read_bytes() == before
    assert storage.replica._jobs is jobs


def test_statistics_that_have_not_changed_are_not_written_again(storage: FileStorage, directory: Path) -> None:
    Client(storage).create_queue("q")
    ops = storage.operations("sync")
    drive(ops.observe())  # pyright: ignore[reportAttributeAccessIssue]
    before = (directory / "journal").read_bytes()
    drive(ops.observe())  # pyright: ignore[reportAttributeAccessIssue]
    assert (directory / "journal").read_bytes() == before


def test_a_definition_that_was_lost_comes_back_with_the_next_change_of_its_queue(
    storage: FileStorage, directory: Path, clock: ManualClock
) -> None:
    """Every change has all that is known of a queue; the jobs that were read before it are then filed anew."""
    client = Client(storage)
    client.create_queue("q", policy="singleton")
    client.enqueue_many("q", [("a", None), ("b", None)])
    client.pause_queue("q")
    storage.close()
    journal = directory / "journal"
    header, _, *rest = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([header, b"damaged\n", *rest]))
    again = FileStorage(directory, clock=clock)
    Client(again).resume_queue("q")
    ops = again.operations("sync")
    assert [job.lease.id for job in drive(ops.claim(["q"], worker="ann", limit=5, policy=POLICY))] == ["a"]
    again.close()
