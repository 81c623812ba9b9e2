"""Producers and workers in processes of their own: results, retries, cancellation, recovery."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

ROOT = Path(__file__).parents[2]
ODD = "order:7/ä b\t\"'%s\\"


class Producer:
    """A producer's process, which makes the calls that it is told to."""

    def __init__(self, url: str) -> None:
        self.process = start("produce", url, stdin=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self.process:
            assert self.process.stdin
            self.process.stdin.close()
            assert self.process.wait(60) == 0

    def begin(self, method: str, *arguments: Any, **options: Any) -> None:
        """Have a call made, and do not wait for it."""
        assert self.process.stdin
        print(json.dumps([method, ["orders", *arguments], options]), file=self.process.stdin, flush=True)

    def end(self) -> dict[str, Any]:
        """Return what came of it."""
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        self.begin(method, *arguments, **options)
        return self.end()["returned"]

    def failure(self, method: str, *arguments: Any, **options: Any) -> tuple[str, str]:
        self.begin(method, *arguments, **options)
        kind, message = self.end()["raised"]
        return kind, message


def start(what: str, url: str, **pipes: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.producer_and_worker", what, url],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        **pipes,
    )


@pytest.fixture
def url(database: str) -> str:
    told = conninfo_to_dict(database)
    return f"postgresql://{told['user']}@/{told['dbname']}?host={told['host']}&port={told.get('port') or 5432}"


@pytest.fixture
def producer(url: str) -> Iterator[Producer]:
    with Producer(url) as producer:
        yield producer


@contextmanager
def worker(url: str) -> Generator[subprocess.Popen[str]]:
    """Run a worker's process; a SIGTERM in the end finds it in good order, unless a test has killed it."""
    with start("work", url) as process:
        try:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
        finally:
            process.kill()


def until(holds: Callable[[], Any]) -> Any:
    while not (answer := holds()):
        time.sleep(0.02)
    return answer


def state(producer: Producer, job_id: str) -> str:
    return producer.call("get_status", job_id)["state"]


def test_enqueue_returns_at_once_and_the_result_is_read_later(url: str, producer: Producer) -> None:
    """Queued, then a duplicate of what waits, then of what has completed; whatever is in the id."""
    assert producer.call("enqueue", ODD, {"return": 1})["status"] == "queued"
    again = producer.call("enqueue", ODD, {"return": 2})
    assert (again["status"], again["existing_state"]) == ("duplicate", "queued")
    assert producer.call("get_result", ODD, "not yet") == "not yet"
    with worker(url):
        until(lambda: state(producer, ODD) == "completed")
    assert producer.call("get_result", ODD) == 1
    assert producer.call("enqueue", ODD, {"return": 3}) == {
        "status": "completed",
        "id": ODD,
        "existing_state": "completed",
        "result": 1,
    }


def test_a_consumer_runs_retries_and_fails(url: str, producer: Producer) -> None:
    """A handler that raises is retried up to its attempts; its last error stays, and its id may be enqueued again."""
    with worker(url):
        producer.call("enqueue", "twice", {"fail": 1}, max_attempts=2)
        producer.call("enqueue", "never", {"fail": 9}, max_attempts=2)
        until(lambda: state(producer, "twice") == "completed" and state(producer, "never") == "failed")
        assert producer.call("get_result", "twice")["attempts"] == 2
        failed = producer.call("get_status", "never")
        assert (failed["attempts"], failed["error"]["message"]) == (2, "attempt 2 went wrong")
        assert producer.call("enqueue", "never", {"return": 1}, on_failed="duplicate")["existing_state"] == "failed"
        assert producer.call("enqueue", "never", {"return": 1})["status"] == "queued"
        until(lambda: state(producer, "never") == "completed")


def test_a_request_gets_its_response(url: str, producer: Producer) -> None:
    """A result, none, a megabyte, a cached one, an error, and no answer in time."""
    silent = producer.failure("enqueue_and_wait", "late", {"return": "later"}, timeout=0.1)
    assert silent[0] == "TimeoutError"
    assert "no worker is listening" in silent[1]
    with worker(url):
        assert producer.call("enqueue_and_wait", "late", {"return": "ignored"}, timeout=60) == "later"
        assert producer.call("enqueue_and_wait", "late", {"return": "ignored"}, timeout=60) == "later"
        assert producer.call("enqueue_and_wait", None, {"return": None}, timeout=60) is None
        assert len(producer.call("enqueue_and_wait", None, {"big": 1_000_000}, timeout=60)) == 1_000_000
        assert producer.call("enqueue_and_wait", "x", {"fail": 2}, timeout=60, max_attempts=3)["attempts"] == 3
        assert producer.failure("enqueue_and_wait", "y", {"fail": 9}, timeout=60, max_attempts=1) == (
            "MaxRetriesError",
            "job 'y' in queue 'orders' failed: ValueError: attempt 1 went wrong",
        )


def test_a_cancelled_job_never_runs_and_its_id_is_free(url: str, producer: Producer, database: str) -> None:
    """What waits is withdrawn, what runs is not, and of an id that was enqueued again only the second payload runs."""
    producer.call("enqueue", "a", {"return": "first"})
    assert producer.call("cancel", "a") == {"status": "cancelled"}
    assert producer.call("cancel", "nobody") == {"status": "not_found"}
    assert producer.call("enqueue", "a", {"return": "second"})["status"] == "queued"
    with psycopg.connect(database) as holder:
        holder.execute("select pg_advisory_xact_lock(1)")
        with worker(url), Producer(url) as waiting:
            producer.call("enqueue", "running", {"hang": 1})
            until(lambda: state(producer, "running") == "processing")
            assert producer.call("cancel", "running") == {"status": "processing"}
            until(lambda: state(producer, "a") == "completed")
            assert producer.call("get_result", "a") == "second"
            assert producer.call("cancel", "a") == {"status": "completed"}
            waiting.begin("enqueue_and_wait", "running", None, timeout=60)
            until(lambda: holder.execute("select from pgjq.job where awaited").fetchall())
            assert producer.call("cancel", "running", active=True) == {"status": "processing"}
            assert waiting.end()["raised"][0] == "JobCancelledError"
            holder.rollback()


def test_a_job_of_a_killed_worker_is_recovered_and_its_waiter_gets_the_answer(
    url: str, producer: Producer, database: str
) -> None:
    """The producer waits all the time, does not ask, and learns nothing of it but the answer."""
    with psycopg.connect(database) as holder, worker(url) as doomed, Producer(url) as observer:
        holder.execute("select pg_advisory_xact_lock(2)")
        producer.begin("enqueue_and_wait", "stalls", {"hang": 2}, timeout=60, max_attempts=2)
        until(lambda: (found := observer.call("get_status", "stalls")) and found["state"] == "processing")
        doomed.kill()
        doomed.wait()
        with worker(url):
            assert producer.end()["returned"] == {"attempts": 2, "payload": {"hang": 2}}
        assert observer.call("get_status", "stalls")["stalled"] == 1
