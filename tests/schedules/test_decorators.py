"""Schedules that code declares: a worker adds or updates them when it starts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from tests.schedules.conftest import wait_until

if TYPE_CHECKING:
    from tests.schedules.conftest import StorageHarness


def test_a_decorated_function_runs_at_its_times(harness: StorageHarness) -> None:
    imports = pgjq.Queue("imports", storage=harness.storage, block_timeout=300)
    ran: list[Any] = []
    done = threading.Semaphore(0)

    @imports.schedule("0 3 * * *", timezone="Europe/Berlin", priority=7)
    def nightly() -> None:
        ran.append("nightly")
        done.release()

    @imports.task
    def feed(number: int, *, full: bool = False) -> None:
        ran.append((number, full))
        done.release()

    feed.schedule("30 3 * * *", 7, full=True)
    imports.schedule(every=3600, name="feed 8", overlap="skip")(feed.call(8))
    assert harness.client.get_schedules() == []  # Declaring stores nothing.
    with imports:
        wait_until(lambda: len(harness.client.get_schedules()) == 3)
        found = {schedule.name: schedule for schedule in harness.client.get_schedules()}
        assert sorted(found) == ["feed 8", "feed(7, full=true)", "nightly"]
        assert (found["nightly"].timezone, found["nightly"].options["priority"]) == ("Europe/Berlin", 7)
        assert found["nightly"].next_run_at == harness.at("02:00:00")
        assert found["nightly"].payload == {"task": "nightly", "args": [], "kwargs": {}}
        harness.advance(3.5 * 3600)
        for _ in range(3):
            assert done.acquire(timeout=60)
    assert sorted(map(str, ran)) == ["(7, True)", "(8, False)", "nightly"]


def test_a_restart_keeps_the_next_run_and_a_new_version_changes_it(harness: StorageHarness) -> None:
    harness.client.create_schedule("other", "imports", every=60)

    def start(times: int, cron: str, **options: Any) -> None:
        queue = pgjq.Queue("imports", storage=harness.storage, block_timeout=300)
        queue.schedule(cron, name="s", **options)(queue.task(_nothing))
        with queue:
            harness.advance(60)
            harness.ticks("other", times)  # A worker declares its schedules before it ticks any.

    for times in (1, 2, 3):  # Deployments come more often than the tick.
        start(times, "0 * * * *")
        assert harness.client.get_schedule("s").next_run_at == harness.at("01:00:00")
    start(4, "30 * * * *", missed="skip")
    changed = harness.client.get_schedule("s")
    assert (changed.cron, changed.missed, changed.next_run_at) == ("30 * * * *", "skip", harness.at("00:30:00"))
    assert [schedule.name for schedule in harness.client.get_schedules()] == ["other", "s"]  # None is deleted.


def _nothing() -> None:
    pass


def test_wrong_declarations_are_refused_where_they_stand() -> None:
    queue = pgjq.Queue("imports", storage=pgjq.MemoryStorage())
    with pytest.raises(pgjq.ValidationError, match="cron"):
        queue.schedule("61 * * * *")(queue.task(_nothing))
    with pytest.raises(pgjq.ValidationError, match="number"):

        @queue.schedule("* * * * *")
        def needs(number: int) -> None: ...

    redis = pgjq.Queue("imports", storage=pgjq.RedisStorage("redis://localhost:1"))
    with pytest.raises(pgjq.UnsupportedError, match="no schedules"):
        redis.schedule("* * * * *")(redis.task(_nothing))
