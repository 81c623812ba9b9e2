"""Which exceptions of a task are retried, and when."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import Client, Discard, MemoryStorage, NewJob, Queue, Retry, Snooze, ValidationError
from pgjq.testing import ManualClock

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness


def test_a_task_is_retried_with_backoff_unless_it_or_its_queue_says_otherwise(harness: Harness) -> None:
    async def case() -> None:
        mail = harness.queue(concurrency=2)
        client = harness.client()

        @mail.task
        def fail() -> None:
            raise ConnectionError

        @mail.execute
        def handle(_job: Any) -> None:
            raise ConnectionError

        async def delay_of(job_id: str) -> float:
            status = await harness.until_state(mail, job_id, "failing", "failed")
            return (status.run_at - status.started_at).total_seconds() if status.run_at else -1

        plain = NewJob("handler", {"task": 5}, retry_delay=3600)
        flat = fail.using(retry_backoff=False, retry_delay=50, id="flat")
        await harness.call(mail.enqueue_many, [fail.using(id="one").call(), plain, flat.call()])
        await harness.call(mail.enqueue_many, [fail.using(id=f"copied{n}").call() for n in range(2)])
        generated = await harness.call(fail.enqueue)
        bulk = await harness.call(mail.enqueue_many, [fail.call() for _ in range(120)])
        async with harness.started(mail):
            for job_id in ("one", "copied1", generated.id, bulk[-1].id):
                assert 1.0 <= await delay_of(job_id) < 30
            assert 3600 <= await delay_of("handler") < 3660
            assert 50 <= await delay_of("flat") < 80
        assert {(await harness.call(client.get_status, "mail", job_id)).max_attempts for job_id in ("one", "flat")} == {
            3
        }

    harness.run(case())


def test_the_definition_of_a_queue_comes_before_the_defaults_of_tasks(harness: Harness) -> None:
    if not harness.storage.capabilities.definitions:
        pytest.skip("the storage has no definitions")

    async def case() -> None:
        client = harness.client()
        await harness.call(client.create_queue, "mail", retry_backoff=False, retry_delay=77, retry_limit=4)
        mail = harness.queue()

        @mail.task(max_attempts=9)
        def own() -> None:
            raise ConnectionError

        @mail.task(retry_backoff=True)
        def growing() -> None:
            raise ConnectionError

        handles = [await harness.call(task.enqueue) for task in (own, growing)]
        many = await harness.call(mail.enqueue_many, [own.call() for _ in range(120)])
        async with harness.started(mail):
            first, second = [await harness.until_state(mail, h.id, "failing") for h in handles]
            last = await harness.until_state(mail, many[-1].id, "failing")
        assert (first.max_attempts, second.max_attempts, last.max_attempts) == (9, 5, 9)
        for status in (first, last):
            assert timedelta(seconds=77) <= status.run_at - status.started_at < timedelta(seconds=77 + 30)
        assert second.run_at - second.started_at < timedelta(seconds=154 + 30)

    harness.run(case())


class Fatal(ConnectionError): ...


def eleven(_error: BaseException, _attempt: int) -> float:
    return 11


def run_once(error: BaseException, using: Any = None, **options: Any) -> Any:
    """Return the status of a job after one run of a task that raises, and the delay of its retry."""
    clock = ManualClock()
    queue = Queue("q", storage=MemoryStorage(clock=clock), block_timeout=30)

    @queue.task(**options)
    def task() -> None:
        raise error

    handle = task.using(**using or {}).enqueue()
    with Client(queue.storage).subscribe("q") as events, queue:
        next(event for event in events if event.name in ("failing", "failed", "queued"))
        status = handle.status()
        assert status
    queue.storage.close()
    return status.state, status.run_at and (status.run_at - clock()).total_seconds()


def test_retry_on_and_discard_on_choose_exceptions() -> None:
    only = {"retry_on": (ConnectionError,), "retry_backoff": False, "retry_delay": 5}
    assert run_once(ConnectionResetError(), **only) == ("failing", 5)
    assert run_once(ValueError(), **only) == ("failed", None)
    assert run_once(Fatal(), **only, discard_on=Fatal) == ("failed", None)
    assert run_once(ValueError(), discard_on=[ValueError]) == ("failed", None)
    assert run_once(KeyError(), discard_on=[ValueError], retry_delay=5, retry_backoff=False) == ("failing", 5)
    assert run_once(Retry(delay=9), **only) == ("failing", 9)
    assert run_once(Snooze(delay=9), **only) == ("queued", 9)
    assert run_once(Discard("no"), retry_on=Discard) == ("failed", None)


def test_a_call_may_have_its_own_choice_of_exceptions() -> None:
    flat = {"retry_backoff": False, "retry_delay": 5}
    assert run_once(ConnectionResetError(), {"retry_on": ConnectionError}, **flat) == ("failing", 5)
    assert run_once(ValueError(), {"retry_on": [ConnectionError]}, **flat) == ("failed", None)
    assert run_once(ValueError(), {"retry_on": None}, **flat, retry_on=ConnectionError) == ("failing", 5)
    assert run_once(Fatal(), {"discard_on": (ConnectionError, KeyError)}, **flat) == ("failed", None)
    assert run_once(ValueError(), {"discard_on": Fatal, "headers": {"a": "b"}}, **flat) == ("failing", 5)
    assert run_once(ValueError(), {"backoff": lambda _error, attempt: 7 * attempt}) == ("failing", 7)
    assert run_once(ValueError(), {"backoff": lambda _error, _attempt: None}) == ("failed", None)
    assert run_once(ValueError(), {"backoff": eleven}, backoff=lambda _error, _attempt: 1) == ("failing", 11)
    assert run_once(ValueError(), {"backoff": None}, **flat, backoff=eleven) == ("failing", 5)
    with pytest.raises(ValidationError, match="backoff must be a function"):
        run_once(ValueError(), {"backoff": 5})


@pytest.mark.parametrize(
    ("name", "delay"),
    [(f"{__name__}:eleven", 11), ("shutil:rmtree", 5), (f"{__name__}:gone", 5), ("nonsense", 5), ("tests:__name__", 5)],
)
def test_a_worker_calls_only_functions_of_the_tasks_own_package(
    name: str, delay: float, caplog: pytest.LogCaptureFixture
) -> None:
    """The header of a producer in another process: this one has passed no function to using()."""
    flat = {"retry_backoff": False, "retry_delay": 5}
    with caplog.at_level(logging.WARNING, "pgjq"):
        assert run_once(ValueError(), {"headers": {"pgjq-backoff": name}}, **flat) == ("failing", delay)
    assert ("unknown backoff" in caplog.text) is (delay != 11)


def test_backoff_is_a_function_of_the_error_and_the_attempt(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    def backoff(error: BaseException, attempt: int) -> float | timedelta | None:
        seen.append((type(error), attempt))
        return {ValueError: 12.5, KeyError: timedelta(minutes=1)}.get(type(error))

    assert run_once(ValueError(), backoff=backoff) == ("failing", 12.5)
    assert run_once(KeyError(), backoff=backoff) == ("failing", 60)
    assert run_once(TypeError(), backoff=backoff) == ("failed", None)
    assert run_once(Retry(delay=9), backoff=backoff) == ("failing", 9)
    assert run_once(ValueError(), backoff=backoff, max_attempts=1) == ("failed", None)
    assert seen == [(ValueError, 1), (KeyError, 1), (TypeError, 1)]
    with caplog.at_level(logging.ERROR, "pgjq"):
        state, delay = run_once(ValueError(), backoff=lambda _error, _attempt: 1 / 0)
        assert state == "failing"
        assert 1 <= delay < 2
        flat = {"retry_backoff": False, "retry_delay": 5}
        assert run_once(ValueError(), backoff=lambda _error, _attempt: -1, **flat) == ("failing", 5)
    assert "backoff failed" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"retry_on": "ValueError"},
        {"retry_on": [ValueError, 1]},
        {"discard_on": int},
        {"backoff": 5},
        {"unknown": 1},
        {"connection": object()},
        {"version": 0},
        {"aliases": "name"},
        {"priority": "high"},
        {"headers": {"a": 1}},
        {"id": 7},
        {"id": "{order"},
        {"id": "x-{number}"},
        {"singleton_key": "{0}"},
    ],
)
def test_wrong_options_are_refused_at_the_definition(options: dict[str, Any]) -> None:
    queue = Queue("q", storage=MemoryStorage())
    with pytest.raises(ValidationError):
        queue.task(**options)(lambda order: order)
