"""Old and new workers side by side: jobs that a worker does not know wait for one that does."""

from __future__ import annotations

import logging
import signal
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import Client, Event, MemoryStorage, PostgresStorage, Queue, ValidationError, Worker
from pgjq.testing import ManualClock
from pgjq.testing.clock import PostgresClock
from tests.cli.run_command import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pgjq.testing.worker.harness import Harness


def test_a_job_of_an_unknown_task_or_a_newer_version_is_put_back(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    async def case() -> None:
        mail = harness.queue(concurrency=2)
        client = harness.client()
        warnings = harness.log_events(client, "warning")

        @mail.task
        def known(number: int) -> int:
            return number

        jobs = {
            "unknown": {"task": "receipt", "args": [7]},
            "newer": {"task": "known", "args": [7], "version": 2},
            "nothing": {"no": "task"},
        }
        with caplog.at_level(logging.WARNING, "pgjq"):
            async with harness.started(mail):
                for job_id, payload in jobs.items():
                    # By the client: its first enqueue waits until it receives events.
                    await harness.call(client.enqueue, mail.name, job_id, payload)
                    await harness.until(lambda: warnings.all and warnings.all[-1].id == job_id, "it is warned of")  # noqa: B023
                for job_id in jobs:
                    await _until_put_back(harness, mail, job_id)
        assert [(event.id, event.task, event.reason, event.count) for event in warnings.all] == [
            ("unknown", "receipt", "unknown_task", 1),
            ("newer", "known", "newer_version", 1),
            ("nothing", None, "no_handler", 1),
        ]
        lines = [record for record in caplog.records if record.msg.startswith("job put back")]
        assert [(line.job_id, line.reason, line.delay) for line in lines] == [  # type: ignore[attr-defined]
            ("unknown", "unknown_task", 10.0),
            ("newer", "newer_version", 10.0),
            ("nothing", "no_handler", 10.0),
        ]

    harness.run(case())


async def _until_put_back(harness: Harness, queue: Any, job_id: str) -> None:
    async def is_back() -> Any:
        status = await harness.call(queue.get_status, job_id)
        return status if (status.state, status.lease) == ("queued", 1) else None

    status = await harness.until(is_back)
    assert (status.attempts, status.error) == (0, None)
    assert timedelta(seconds=9) < status.run_at - status.created_at < timedelta(seconds=40)


def test_each_time_it_waits_twice_as_long_up_to_five_minutes() -> None:
    clock = ManualClock()
    storage = MemoryStorage(clock=clock)
    queue = Queue("q", storage=storage, block_timeout=30)
    queue.task(name="known")(lambda: None)
    queue.enqueue("a", {"task": "unknown"})
    delays: list[float] = []
    put_back = threading.Event()
    stream = queue.client.subscribe("q")
    with queue, stream:
        for event in stream:
            if event.name == "queued" and (status := queue.get_status("a")) and status.lease:
                assert status.run_at
                delays.append((status.run_at - clock()).total_seconds())
                if len(delays) == 7:
                    put_back.set()
                    break
                clock.advance(delays[-1])
    assert put_back.is_set()
    assert delays == [10, 20, 40, 80, 160, 300, 300]


def test_names_are_unique_on_a_queue_and_aliases_are_names() -> None:
    queue = Queue("q", storage=MemoryStorage())

    @queue.task(aliases=["old"])
    def new() -> None: ...

    with pytest.raises(ValidationError, match="queue 'q' has a task 'new' already"):
        queue.task(new.function)
    with pytest.raises(ValidationError, match="queue 'q' has a task 'old' already"):
        queue.task(name="old")(lambda: None)
    with pytest.raises(ValidationError, match="queue 'q' has a task 'old' already"):
        queue.task(name="another", aliases=["old"])(lambda: None)
    for name in ("", "x" * 129, "a\nb", 7):
        with pytest.raises(ValidationError, match="a task's name must be"):
            queue.task(name=name)(lambda: None)  # type: ignore[call-overload]
    assert list(queue.tasks) == ["new"]


def until(holds: Any) -> None:
    """Wait until something holds; the suite's time-out is the limit."""
    while not holds():
        time.sleep(0.005)


def test_a_rolling_deployment_loses_and_fails_nothing() -> None:
    """Old and new workers run together; a task is renamed, one gets a new version with a new argument, one is new."""
    clock = ManualClock()
    storage = MemoryStorage(clock=clock)
    ran: list[tuple[Any, ...]] = []
    old, new = (Queue("mail", storage=storage, concurrency=2, block_timeout=30) for _ in range(2))

    @old.task
    def welcome(name: str) -> None:
        ran.append(("old", "welcome", name))

    @old.task
    def receipt(order: int) -> None:
        ran.append(("old", "receipt", order))

    @new.task(name="greet", aliases=["welcome"])
    def greet(name: str) -> None:
        ran.append(("new", "greet", name))

    @new.task(name="receipt", version=2)
    def receipt2(order: int, copies: int = 1) -> None:
        ran.append(("new", "receipt", order, copies))

    @new.task
    def refund(order: int) -> None:
        ran.append(("new", "refund", order))

    workers = [Worker(queue) for queue in (old, new)]
    calls = [
        (welcome, ("ann",)),
        (receipt, (1,)),
        (greet, ("bob",)),
        (receipt2, (2, 3)),
        (refund, (4,)),
        (refund, (5,)),
    ]
    warned: list[Event] = []
    new.client.on("warning", warned.append)
    with workers[0]:
        handles: list[Any] = [task.enqueue(*args) for task, args in calls]
        until(lambda: all(handle.status().lease for handle in handles))
        with workers[1]:
            more = [welcome.enqueue("cleo"), receipt.enqueue(6)]
            # What the old worker takes again, it puts back again: in the end the new one runs it.
            until(lambda: clock.advance(600) or all(h.status().state == "completed" for h in handles + more))
    assert {handle.status().attempts for handle in handles + more} == {1}
    assert sorted(run for run in ran if "cleo" not in run and 6 not in run) == [
        ("new", "greet", "bob"),
        ("new", "receipt", 2, 3),
        ("new", "refund", 4),
        ("new", "refund", 5),
        ("old", "receipt", 1),
        ("old", "welcome", "ann"),
    ]
    assert len(ran) == 8
    assert {event.reason for event in warned} >= {"unknown_task", "newer_version"}
    new.client.close()


SHOP = """
import os
import pgjq

storage = pgjq.PostgresStorage(os.environ["PGJQ_URL"])
mail = pgjq.Queue("mail", storage=storage, concurrency=2, visibility_timeout=86400)
"""
OLD = """

@mail.task
def welcome(name: str) -> list[object]:
    return ["old", name]


@mail.task
def receipt(order: int) -> list[object]:
    return ["old", order]
"""
NEW = """

@mail.task(aliases=["welcome"])
def greet(name: str) -> list[object]:
    return ["new", name]


@mail.task(version=2)
def receipt(order: int, copies: int = 1) -> list[object]:
    return ["new", order, copies]


@mail.task
async def refund(order: int) -> list[object]:
    return ["new", order]
"""


@pytest.fixture
def clock(database: str) -> Iterator[PostgresClock]:
    clock = PostgresClock(database)
    yield clock
    clock.restore()


def test_processes_of_two_versions_and_one_that_is_killed(database: str, clock: PostgresClock, tmp_path: Path) -> None:
    """Producers of both versions go on while the old workers are replaced, one of them by a kill."""
    (tmp_path / "old_shop.py").write_text(SHOP + OLD)
    (tmp_path / "new_shop.py").write_text(SHOP + NEW)
    old_jobs: list[Any] = [{"task": "welcome", "args": ["a"]}, {"task": "receipt", "args": [1]}]
    new_jobs: list[Any] = [
        {"task": "greet", "kwargs": {"name": "a"}},
        {"task": "receipt", "args": [1, 2], "version": 2},
        {"task": "refund", "args": [1]},
    ]
    with Client(PostgresStorage(database)) as client:

        def enqueue(part: str, payloads: list[Any]) -> list[str]:
            return [client.enqueue("mail", f"{part}{n}", payload).id for n, payload in enumerate(payloads)]

        def pass_time(ids: list[str]) -> None:
            """Move the clock until these jobs have ended; what is put back is due again after five minutes at most."""
            while any(job.state not in ("completed", "failed") for job in client.get_statuses("mail", ids).values()):
                clock.advance(300)
                time.sleep(0.02)

        with started("worker", "old_shop", url=database, directory=tmp_path) as first:
            first.wait_for(" serves ")
            with started("worker", "new_shop", url=database, directory=tmp_path) as second:
                second.wait_for(" serves ")
                pass_time(enqueue("both", old_jobs + new_jobs))
                first.end(signal.SIGKILL)
                pass_time(enqueue("late", old_jobs + new_jobs))
                second.end()
        found = {job.id: job for job in client.find_jobs("mail")}
    assert {(job.state, job.attempts) for job in found.values()} == {("completed", 1)}
    assert len(found) == 10
    by_new = ["new", "a"], ["new", 1, 1], ["new", "a"], ["new", 1, 2], ["new", 1]
    assert [found[f"late{n}"].result for n in range(5)] == list(by_new)
    for n, result in enumerate(by_new):  # Jobs that both versions know may have run in either.
        assert found[f"both{n}"].result in ([result] if n > 1 else [result, ["old", result[1]]])
