"""What a worker logs by itself: one line for each thing that happened, with the exception where it has one."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq import AsyncJob, Job, LeasePolicy, NewJob, Queue, Reaper
from tests.worker.conftest import Events, abandon, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgjq.storage.base import Storage

BLOCK = 30.0


class Log(logging.Handler):
    """Collects records of a logger of a test's own, and waits for them."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self.logger = logging.getLogger(name)
        self.logger.addHandler(self)
        self.logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def lines(self) -> list[tuple[int, str]]:
        return [(record.levelno, record.getMessage()) for record in self.records]


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    log = Log(f"shop.{request.node.name}")
    log.logger.setLevel(logging.INFO)
    yield log
    log.logger.removeHandler(log)


def boom(_job: Any) -> None:
    raise ValueError("boom")


async def boom_async(_job: Any) -> None:
    raise ValueError("boom")


def report_boom(_job: Any, done: Callable[..., None]) -> None:
    done(ValueError("boom"))


def run_to_end(storage: Storage, log: Log, handler: Callable[..., Any], **options: Any) -> None:
    queue = Queue("q", storage=storage, logger=log.logger, block_timeout=BLOCK)
    queue.execute(handler)
    ended = Events(queue, "completed", "failed", "cancelled")
    queue.enqueue("job", None, **options)
    with queue:
        ended.wait()


@pytest.mark.parametrize("handler", [boom, boom_async, report_boom])
def test_failures_are_logged_with_their_exception(storage: Storage, log: Log, handler: Callable[..., Any]) -> None:
    run_to_end(storage, log, handler, max_attempts=2)
    retried, failed = log.records
    assert (retried.levelname, retried.getMessage()) == ("WARNING", "attempt failed, the job will be retried")
    assert (failed.levelname, failed.getMessage()) == ("ERROR", "job failed")
    for attempt, record in enumerate(log.records, 1):
        facts = {name: getattr(record, name) for name in ("queue", "job_id", "attempt", "max_attempts", "error")}
        assert facts == {
            "queue": "q",
            "job_id": "job",
            "attempt": attempt,
            "max_attempts": 2,
            "error": "ValueError: boom",
        }
        assert record.exc_info is not None
        assert repr(record.exc_info[1]) == "ValueError('boom')"


def test_the_logger_is_pgjq_unless_the_queue_has_another(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue("q", storage=storage, block_timeout=BLOCK)
    queue.execute(boom)
    failed = Events(queue, "failed")
    queue.enqueue("job", None, max_attempts=1)
    with queue:
        failed.wait()
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [("pgjq", "ERROR", "job failed")]


def test_what_a_handler_asks_for_is_no_failure(storage: Storage, log: Log) -> None:
    def handle(job: Job) -> None:
        if job.attempts == 1:
            raise pgjq.Retry(delay=0)
        raise pgjq.Discard("no use")

    run_to_end(storage, log, handler=handle, max_attempts=5)
    assert log.lines() == [
        (logging.INFO, "attempt failed, the job will be retried"),
        (logging.INFO, "job discarded"),
    ]
    assert all(record.exc_info is None for record in log.records)


def test_jobs_that_do_well_are_logged_for_debugging_only(storage: Storage, log: Log) -> None:
    snoozed: list[int] = []

    def handle(job: Job) -> None:
        if not snoozed:
            snoozed.append(job.attempts)
            raise pgjq.Snooze(delay=0)

    run_to_end(storage, log, handle)
    assert log.lines() == []
    log.logger.setLevel(logging.DEBUG)
    snoozed.clear()
    queue = Queue("q", storage=storage, logger=log.logger, block_timeout=BLOCK)
    queue.execute(handle)
    done = Events(queue, "completed")
    queue.enqueue("another", None)
    with queue:
        done.wait()
    messages = [record.getMessage() for record in log.records]
    assert sorted(messages) == ["job completed", "job processing", "job processing", "job snoozed"]


def test_a_result_that_cannot_be_serialised_is_a_failure(storage: Storage, log: Log) -> None:
    run_to_end(storage, log, lambda job: {job.id})
    (record,) = log.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "job failed")
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], pgjq.ValidationError)
    assert record.exc_info[1].__cause__ is not None


@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_an_attempt_that_expires_is_logged_once(storage: Storage, log: Log, style: str) -> None:
    def hang(job: Job) -> None:
        if job.attempts == 1:
            job.signal.wait(60)

    async def hang_async(job: AsyncJob) -> None:
        if job.attempts == 1:
            await asyncio.sleep(60)

    queue = Queue("q", storage=storage, logger=log.logger, lease_policy=LeasePolicy(expire=0.4), block_timeout=BLOCK)
    queue.execute(hang if style == "plain" else hang_async)
    done = Events(queue, "completed")
    queue.enqueue("job", None)
    with queue:
        done.wait()
    records = [r for r in log.records if r.getMessage() != "outcome dropped: the handler ended after its run was over"]
    assert [(r.levelname, r.getMessage()) for r in records] == [("WARNING", "attempt expired, the job will be retried")]
    assert records[0].reason == "expired"  # type: ignore[attr-defined]


def test_a_cancelled_job_is_logged(storage: Storage, log: Log) -> None:
    started = threading.Event()

    def work(job: Job) -> None:
        started.set()
        job.signal.wait(60)

    queue = Queue("q", storage=storage, logger=log.logger, lease_policy=LeasePolicy(lease=2, heartbeat=0.1))
    queue.execute(work)
    heard = Events(queue, "cancelled")
    queue.enqueue("job", None)
    with queue:
        assert started.wait(60)
        queue.cancel("job", active=True)
        heard.wait()
    assert (logging.INFO, "job cancelled") in log.lines()


def test_stalls_are_logged_one_by_one_beside_their_number(storage: Storage, log: Log) -> None:
    abandon(storage, NewJob("a", 1), NewJob("b", 2, max_attempts=1))
    queue = Queue("q", storage=storage, logger=log.logger, lease_policy=LeasePolicy(reap_interval=0.1))
    queue.execute(lambda job: job.id)
    heard = Events(queue, "stalled", "completed")
    with queue:
        heard.wait(3)
    assert sorted(log.lines()) == [
        (logging.INFO, "released stale running jobs count=2"),
        (logging.WARNING, "job stalled"),
        (logging.ERROR, "job stalled"),
    ]
    facts = {(r.job_id, r.action, r.reason, r.worker) for r in log.records if hasattr(r, "job_id")}  # type: ignore[attr-defined]
    assert facts == {("a", "recovered", "lease", "ghost"), ("b", "failed", "lease", "ghost")}


def test_a_reaper_logs_them_too(storage: Storage, log: Log) -> None:
    abandon(storage, NewJob("a", 1))
    with Reaper(storage=storage, logger=log.logger):
        until(lambda: len(log.records) == 2)
    assert [message for _, message in log.lines()] == ["released stale running jobs count=1", "job stalled"]


def test_a_lost_lease_is_logged_once(storage: Storage, log: Log) -> None:
    """Another worker's reaper takes the job back while this handler hangs; what it returns is refused, quietly."""
    started, go_on = threading.Event(), threading.Event()

    def hang(job: Job) -> None:
        if job.attempts == 1:
            started.set()
            job.signal.wait(60)
            go_on.wait(60)

    policy = LeasePolicy(lease=0.3, heartbeat=None, reap_interval=0.1)
    queue = Queue("q", storage=storage, logger=log.logger, lease_policy=policy, concurrency=2, block_timeout=0.1)
    queue.execute(hang)
    heard = Events(queue, "completed")
    queue.enqueue("job", None)
    with queue:
        assert started.wait(60)
        heard.wait()
        go_on.set()
    assert sorted(message for _, message in log.lines()) == [
        "job stalled",
        "lease lost",
        "released stale running jobs count=1",
    ]


def test_an_exception_whose_outcome_is_refused_is_not_lost(storage: Storage, log: Log) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hang(job: Job) -> None:
        if job.attempts == 1:
            started.set()
            go_on.wait(60)
            raise ValueError("too late")

    policy = LeasePolicy(lease=0.3, heartbeat=None, reap_interval=0.1)
    queue = Queue("q", storage=storage, logger=log.logger, lease_policy=policy, concurrency=2, block_timeout=0.1)
    queue.execute(hang)
    heard = Events(queue, "completed")
    queue.enqueue("job", None)
    with queue:
        assert started.wait(60)
        heard.wait()
        go_on.set()
        until(lambda: any(record.exc_info for record in log.records))
    (record,) = [record for record in log.records if record.exc_info]
    assert (record.levelname, record.getMessage()) == ("WARNING", "outcome refused: the lease is lost")


def test_an_exception_after_the_jobs_own_transaction_is_logged(postgres: Storage, log: Log) -> None:
    def handle(job: Job) -> None:
        with job.transaction():
            pass
        raise ValueError("afterwards")

    run_to_end(postgres, log, handle)
    until(lambda: log.records)
    assert log.lines() == [(logging.WARNING, "handler raised after its run was over")]


def test_events_carry_the_exception_that_was_raised_here(storage: Storage) -> None:
    raised: list[BaseException] = []

    def handle(_job: Job) -> None:
        error = ValueError("boom")
        raised.append(error)
        raise error

    queue = Queue("q", storage=storage, block_timeout=BLOCK)
    queue.execute(handle)
    heard = Events(queue, "failing", "failed")
    queue.enqueue("job", {"n": 1}, max_attempts=2)
    with queue:
        failing, failed = heard.wait(2)
    assert failing.error is raised[0]
    assert isinstance(failed.error, pgjq.MaxRetriesError)
    assert failed.error.original_error is raised[1]
    assert failed.error.__cause__ is raised[1]
