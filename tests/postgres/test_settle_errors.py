"""What becomes of outcomes whose settlement meets an error: they are kept, unless the error is about their value."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import AsyncJob, Client, Job, LeasePolicy, PostgresStorage, Queue, Retry, ValidationError
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from pgjq.storage.postgres import outcomes
from tests.postgres.conftest import ByRole, execute
from tests.worker.conftest import Events

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY = LeasePolicy(lease=60, heartbeat=0.2, reap_interval=0.2)
ARGUMENTS = "integer[], bigint[], integer[], smallint[], bytea[], text[], double precision[], text[], text"
HIDE = f"alter function pgjq.settle({ARGUMENTS}) rename to settle_elsewhere"
SHOW = f"alter function pgjq.settle_elsewhere({ARGUMENTS}) rename to settle"
REFUSE = """
create function refuse() returns trigger language plpgsql as $$
begin
    if new.result = '"unstorable"' then
        raise exception 'no equivalent in this encoding' using errcode = 'untranslatable_character';
    end if;
    return new;
end $$;
create trigger refuse before insert on pgjq.done_default for each row execute function refuse();
"""


def succeed(job: Job) -> int:
    return job.attempts


async def succeed_async(job: AsyncJob) -> int:
    await asyncio.sleep(0)
    return job.attempts


def retry(_job: Job) -> None:
    raise Retry(delay=3600)


@pytest.mark.parametrize(
    ("handler", "state"), [(succeed, "completed"), (succeed_async, "completed"), (retry, "failing")]
)
def test_an_outcome_outlasts_a_deployment_that_breaks_settling(
    own_database: str, handler: Callable[..., Any], state: str
) -> None:
    """The function is missing for longer than a few tries: every job keeps its outcome, and its attempts."""
    with (
        closing(PostgresStorage(own_database)) as storage,
        psycopg.connect(own_database, autocommit=True) as operator,
    ):
        queue = Queue("q", storage=storage, concurrency=3, lease_policy=POLICY, block_timeout=30)
        queue.execute(handler)
        errors, ended = Events(queue, "error"), Events(queue, "completed", "failing", "failed")
        operator.execute(HIDE)
        queue.enqueue_many([(str(n), None) for n in range(3)])
        with queue:
            errors.wait(16)
            operator.execute(SHOW)
            assert [event.name for event in ended.wait(3)] == [state] * 3
        assert [(s.state, s.attempts) for s in Client(storage).find_jobs("q")] == [(state, 1)] * 3


def test_an_outcome_outlasts_a_missing_privilege(by_role: ByRole) -> None:
    queue = Queue("q", storage=by_role.storages["worker"], lease_policy=POLICY, block_timeout=30)
    queue.execute(succeed)
    errors, ended = Events(queue, "error"), Events(queue, "completed", "failed")
    execute(by_role.owner, "revoke execute on function pgjq.settle from pgjq_worker")
    try:
        queue.enqueue("privileged", None)
        with queue:
            errors.wait(5)
            execute(by_role.owner, "grant execute on function pgjq.settle to pgjq_worker")
            assert [(event.name, event.result) for event in ended.wait()] == [("completed", 1)]
    finally:
        execute(by_role.owner, "grant execute on function pgjq.settle to pgjq_worker")


def test_an_outcome_whose_value_cannot_be_stored_fails_its_job_and_no_other(own_database: str) -> None:
    with closing(PostgresStorage(own_database)) as storage:
        queue = Queue("q", storage=storage, concurrency=4, lease_policy=POLICY, block_timeout=30)
        queue.execute(lambda job: job.payload)
        errors, ended = Events(queue, "error"), Events(queue, "completed", "failed")
        execute(own_database, REFUSE)
        queue.enqueue_many([("a", "fine"), ("bad", "unstorable"), ("b", "fine"), ("c", "fine")])
        with queue:
            ended.wait(4)
        assert {s.id: s.state for s in Client(storage).find_jobs("q")} == {
            "a": "completed",
            "bad": "failed",
            "b": "completed",
            "c": "completed",
        }
        (failed,) = [event for event in ended.events if event.name == "failed"]
        assert "its outcome could not be stored: no equivalent in this encoding" in str(failed.error)
        assert isinstance(errors.events[-1], ValidationError)


def test_results_that_the_server_would_hang_up_on_are_refused_before(
    postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parameter of a gigabyte costs the connection; that must not look like a server that is unavailable."""
    monkeypatch.setattr(outcomes, "LARGEST_PARAMETER", 1000)
    ops = postgres.operations("sync")
    Client(postgres).enqueue_many("q", [("large", None), ("small", None)])
    large, small = drive(ops.claim(["q"], worker="w", limit=2, policy=LeasePolicy()))
    with pytest.raises(ValidationError, match="too large"):
        drive(ops.settle([Settlement(large.lease, Completed(b"x" * 600)), Settlement(small.lease, Completed(b"1"))]))
    assert drive(ops.settle([Settlement(small.lease, Completed(b"1"))]))[0].state == "completed"
