"""A plain handler that outlives its worker: its outcome is dropped with a log line, and nothing breaks."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq import Job, PostgresStorage, Queue, Worker
from tests.worker.conftest import until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage

BLOCK = 30.0


class Late:
    """A handler that is told when to go on, and what to do then."""

    def __init__(self, then: Callable[[Job], Any]) -> None:
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.thread: threading.Thread | None = None
        self._then = then

    def __call__(self, job: Job) -> Any:
        self.thread = threading.current_thread()
        self.started.set()
        self.go_on.wait(60)
        return self._then(job)

    def end(self) -> None:
        """Let the handler end, and its thread."""
        self.go_on.set()
        assert self.thread is not None
        self.thread.join(60)
        assert not self.thread.is_alive()


def of_pgjq(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "pgjq"]


def boom(_job: Job) -> None:
    raise ValueError("late boom")


def transact(job: Job) -> None:
    with job.transaction() as connection:
        connection.execute("select 1")


def stop_before(queue: Queue, late: Late, runnable: Queue | Worker) -> None:
    queue.execute(late)
    queue.enqueue("job", None)
    runnable.start()
    assert late.started.wait(60)
    runnable.stop(grace=0)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What threads died of."""
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    return died


DROPPED = (logging.INFO, "outcome dropped: the handler ended after its run was over", None)
RAISED = (logging.WARNING, "handler raised after its run was over", ValueError)


@pytest.mark.parametrize(
    ("then", "logged"),
    [
        (lambda job: job.id, DROPPED),
        (boom, RAISED),
        (Job.heartbeat, DROPPED),
        (lambda job: job.save_checkpoint(1), DROPPED),
        (lambda job: job.signal.raise_if_aborted(), DROPPED),
    ],
)
def test_what_a_late_handler_does_is_logged(
    storage: Storage, broken: list[Any], caplog: pytest.LogCaptureFixture, then: Callable[[Job], Any], logged: Any
) -> None:
    queue, late = Queue("q", storage=storage, block_timeout=BLOCK), Late(then)
    with caplog.at_level(logging.INFO, "pgjq"):
        stop_before(queue, late, queue)
        assert queue.get_status("job").state == "queued"  # type: ignore[union-attr]
        late.end()
    assert broken == []
    (record,) = of_pgjq(caplog)
    assert (record.levelno, record.getMessage(), record.exc_info and record.exc_info[0]) == logged
    facts = {name: getattr(record, name) for name in ("queue", "job_id", "attempt", "reason")}
    assert facts == {"queue": "q", "job_id": "job", "attempt": 1, "reason": "shutdown"}


def test_a_late_transaction_is_refused(
    postgres: PostgresStorage, broken: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    raised: list[BaseException] = []

    def then(job: Job) -> None:
        try:
            transact(job)
        except pgjq.LeaseLostError as error:
            raised.append(error)
            raise

    queue, late = Queue("q", storage=postgres, block_timeout=BLOCK), Late(then)
    with caplog.at_level(logging.INFO, "pgjq"):
        stop_before(queue, late, queue)
        late.end()
    assert broken == []
    assert len(raised) == 1
    assert [record.levelno for record in of_pgjq(caplog)] == [logging.INFO]


def test_a_transaction_that_was_open_when_the_worker_stopped_is_refused(
    postgres: PostgresStorage, broken: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    inside, go_on, threads = threading.Event(), threading.Event(), list[threading.Thread]()
    queue = Queue("q", storage=postgres, block_timeout=BLOCK)

    @queue.execute
    def handle(job: Job) -> None:
        threads.append(threading.current_thread())
        with job.transaction() as connection:
            connection.execute("select 1")
            inside.set()
            go_on.wait(60)

    queue.enqueue("job", None)
    with caplog.at_level(logging.INFO, "pgjq"):
        queue.start()
        assert inside.wait(60)
        queue.stop(grace=0)
        go_on.set()
        threads[0].join(60)
    assert broken == []
    assert queue.get_status("job").state == "queued"  # type: ignore[union-attr]
    assert [record.levelno for record in of_pgjq(caplog)] == [logging.INFO]


def test_a_late_handler_of_a_worker_of_both_styles(
    storage: Storage, broken: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (Queue(name, storage=storage, block_timeout=BLOCK) for name in ("one", "two"))

    @two.execute
    async def answer(_job: Any) -> None: ...

    late = Late(boom)
    with caplog.at_level(logging.INFO, "pgjq"):
        one.execute(late)
        one.enqueue("job", None)
        worker = Worker(one, two, concurrency=2)
        worker.start()
        assert late.started.wait(60)
        worker.stop(grace=0)
        late.end()
    assert broken == []
    assert [record.getMessage() for record in of_pgjq(caplog)] == ["handler raised after its run was over"]


def test_a_late_handler_finds_its_storage_closed(
    broken: list[Any], database: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = PostgresStorage(database)
    queue, late = Queue("q", storage=storage, block_timeout=BLOCK), Late(Job.heartbeat)
    with caplog.at_level(logging.INFO, "pgjq"):
        stop_before(queue, late, queue)
        storage.close()
        late.end()
    assert broken == []
    assert [record.getMessage() for record in of_pgjq(caplog)] == ["handler raised after its run was over"]


def test_a_queue_that_starts_again_runs_the_job_beside_the_late_handler(storage: Storage, broken: list[Any]) -> None:
    queue, late = Queue("q", storage=storage, block_timeout=BLOCK), Late(lambda job: job.lease)
    stop_before(queue, late, queue)
    late.go_on.set()
    with queue:
        until(lambda: queue.get_result("job") == 2)
    late.end()
    assert broken == []


@pytest.mark.abandons_tasks
def test_a_coroutine_that_ignores_its_cancellation_is_left_behind_with_a_log_line(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    started, go_on = threading.Event(), threading.Event()
    queue = Queue("q", storage=storage, block_timeout=BLOCK)

    @queue.execute
    async def handle(_job: Any) -> None:
        started.set()
        while not go_on.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    queue.enqueue("job", None)
    with caplog.at_level(logging.WARNING, "pgjq"):
        queue.start()
        assert started.wait(60)
        queue.stop(grace=0)
        go_on.set()
        gc.collect()  # asyncio logs it, too, when the task goes.
    assert queue.get_status("job").state == "queued"  # type: ignore[union-attr]
    messages = [record.getMessage() for record in of_pgjq(caplog)]
    assert messages == ["handler abandoned: it did not end when it was cancelled"]


def test_a_coroutine_has_a_moment_to_clean_up_after_its_cancellation(storage: Storage) -> None:
    started, cleaned = threading.Event(), threading.Event()
    queue = Queue("q", storage=storage, block_timeout=BLOCK)

    @queue.execute
    async def handle(_job: Any) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned.set()

    queue.enqueue("job", None)
    queue.start()
    assert started.wait(60)
    queue.stop(grace=0)
    assert cleaned.is_set()


def test_a_coroutine_whose_statement_gets_no_answer_ends_with_the_stop(
    database: str, postgres: PostgresStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """A cancelled statement of psycopg asks the server to cancel it; only a second cancellation ends that wait."""
    started, ended = threading.Event(), threading.Event()
    queue = Queue("q", storage=postgres, block_timeout=BLOCK)

    @queue.execute
    async def handle(_job: Any) -> None:
        connection = await psycopg.AsyncConnection.connect(proxy.conninfo)
        try:
            started.set()
            await connection.execute("select pg_sleep(600)")
        finally:
            await connection.close()
            ended.set()

    with Proxy(database) as proxy:
        queue.enqueue("job", None)
        queue.start()
        assert started.wait(60)
        proxy.silence()
        queue.stop(grace=0)
        assert ended.is_set()
        proxy.restore()
    assert [record.getMessage() for record in of_pgjq(caplog)] == []
