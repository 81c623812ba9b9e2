"""The reaper in every worker: a pass at the start, a tick, a log line, and what its queue hears."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq import LeasePolicy, NewJob, Queue
from pgjq.blocking import drive
from pgjq.worker import reaping
from tests.worker.conftest import Events, abandon, unexpected, until

if TYPE_CHECKING:
    from pgjq import PostgresStorage
    from pgjq.storage.base import Storage

ONCE = LeasePolicy(reap_interval=3600)
OFTEN = LeasePolicy(reap_interval=0.05)


def lapse(storage: Storage) -> None:
    """Wait until the jobs that were abandoned are overdue."""
    until(lambda: (drive(storage.operations("sync").next_deadline()) or 0) < 0)


def worker(storage: Storage, policy: LeasePolicy) -> Queue:
    queue = Queue("q", storage=storage, lease_policy=policy, logger=logging.getLogger("mine"))
    queue.execute(lambda job: job.attempts)
    return queue


def test_a_worker_that_starts_takes_up_what_its_last_life_left(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    abandon(storage, NewJob("a", None), NewJob("b", None))
    lapse(storage)
    queue = worker(storage, ONCE)
    done = Events(queue, "completed")
    with caplog.at_level(logging.INFO, "mine"), queue:
        assert sorted((e.id, e.result) for e in done.wait(2)) == [("a", 2), ("b", 2)]
    said = [r.getMessage() for r in caplog.records if r.name == "mine"]
    assert said == ["released stale running jobs count=2", "job stalled", "job stalled"]


def test_nothing_to_release_is_no_line(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    queue = worker(storage, OFTEN)
    done = Events(queue, "completed")
    with caplog.at_level(logging.INFO, "mine"), queue:
        queue.enqueue("a", None)
        done.wait()
    assert [r for r in caplog.records if r.name == "mine"] == []


def test_an_interval_of_zero_turns_it_off_with_a_warning(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    abandon(storage, NewJob("a", None))
    lapse(storage)
    queue = worker(storage, LeasePolicy(reap_interval=0))
    done = Events(queue, "completed", "stalled")
    with caplog.at_level(logging.WARNING, "mine"), queue:
        queue.enqueue("b", None)
        assert [e.id for e in done.wait()] == ["b"]
    assert [r.getMessage() for r in caplog.records if r.name == "mine"] == [
        "this worker does not reap stalled jobs: reap_interval is 0"
    ]


def test_it_looks_again_after_its_interval_and_at_once_while_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "BATCH", 2)
    storage = pgjq.MemoryStorage()
    abandon(storage, *(NewJob(str(n), None) for n in range(3)), policy=LeasePolicy(lease=0.001, heartbeat=None))
    lapse(storage)
    taken: list[int] = []
    one = reaping.WorkerReaper(
        storage.dedicated(),
        LeasePolicy(reap_interval=300),
        logging.getLogger("mine"),
        reaping=lambda: taken.append(-1),
        reaped=lambda found: taken.append(len(found)),
        report=unexpected(),
    )
    assert [one._step() for _ in range(3)] == [0, 300, 300]
    assert taken == [-1, 2, -1, 1, -1, 0]


def test_the_next_deadline_is_read_once_for_a_batch(monkeypatch: pytest.MonkeyPatch, postgres: PostgresStorage) -> None:
    abandon(postgres, NewJob("a", None))
    lapse(postgres)
    ops, statements = postgres.dedicated(), list[str]()
    fetch = type(ops)._fetch  # type: ignore[attr-defined]

    async def counted(self: Any, name: str, params: Any = None) -> Any:
        statements.append(name)
        return await fetch(self, name, params)

    monkeypatch.setattr(type(ops), "_fetch", counted)
    reaped = [len(reaping.reap_overdue(ops, 0.0, logging.getLogger("mine"))[0]) for _ in range(2)]
    drive(ops.close())
    assert reaped == [1, 0]
    assert [name for name in statements if name != "end_transactions"] == ["next_deadline", "reap", "next_deadline"]


@pytest.mark.parametrize(
    ("options", "names"),
    [({}, ["stalled", "failing"]), ({"max_attempts": 1}, ["stalled", "failed"])],
)
def test_a_queue_hears_that_its_job_stalled_and_what_it_became(
    storage: Storage, options: dict[str, int], names: list[str]
) -> None:
    queue = worker(storage, OFTEN)
    heard = Events(queue, "stalled", "failing", "failed")
    abandon(storage, NewJob("a", {"order": 7}, **options))  # type: ignore[arg-type]
    with queue:
        events = heard.wait(2)
    assert [e.name for e in events] == names
    assert (events[0].queue, events[0].id, events[0].count, events[0].reason) == ("q", "a", 1, "lease")
    if names[1] == "failed":
        assert (type(events[1].error), events[1].error.payload) == (pgjq.MaxRetriesError, {"order": 7})


def test_a_job_over_its_limit_of_stalls_failed_with_attempts_left(storage: Storage) -> None:
    queue = worker(storage, OFTEN)
    heard = Events(queue, "failed")
    abandon(storage, NewJob("a", None), policy=LeasePolicy(lease=0.1, heartbeat=None, max_stalled=0))
    with queue:
        (event,) = heard.wait()
    assert (type(event.error), event.error.original_error.type) == (pgjq.JobFailedError, "Stalled")


def test_a_wish_to_cancel_ends_a_stalled_job_and_is_no_stall(storage: Storage) -> None:
    queue = worker(storage, OFTEN)
    heard = Events(queue, "stalled", "cancelled")
    abandon(storage, NewJob("a", None))
    assert queue.cancel("a", active=True).status == "processing"
    with queue:
        stalled, cancelled = heard.wait(2)
    assert (stalled.count, stalled.action, cancelled.name) == (0, "cancelled", "cancelled")
    status = queue.get_status("a")
    assert status is not None
    assert (status.state, status.stalled, status.stalled_on) == ("cancelled", 0, ())


def test_jobs_of_queues_that_a_worker_does_not_serve_are_taken_back_as_well(storage: Storage) -> None:
    abandon(storage, NewJob("a", None))
    other = Queue("other", storage=storage, lease_policy=OFTEN)
    other.execute(lambda _job: None)
    with other:
        until(lambda: pgjq.Client(storage).get_status("q", "a").state == "failing")  # type: ignore[union-attr]
    assert pgjq.Client(storage).get_status("q", "a").stalled == 1  # type: ignore[union-attr]
