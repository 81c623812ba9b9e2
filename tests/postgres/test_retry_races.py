"""A retry answers with what its own statement did, whatever happens to the job afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg

from pgjq import Client, LeasePolicy
from pgjq.blocking import drive
from pgjq.job import JobError
from pgjq.outcome import Completed, Failed
from pgjq.storage.base import Settlement
from tests.request_response.conftest import until

if TYPE_CHECKING:
    from pgjq import PostgresStorage
    from pgjq.outcome import Outcome

BLOCKED = """
    select from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock' and query like '%job%'
"""


def run(storage: PostgresStorage, outcome: Outcome) -> bool:
    """Claim the job and end it, if it is there."""
    ops = storage.operations("sync")
    taken = drive(ops.claim(["q"], worker="w", limit=1, policy=LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, outcome) for job in taken]))
    return bool(taken)


def test_a_job_that_completes_before_its_status_is_read_was_retried_all_the_same(postgres: PostgresStorage) -> None:
    """The status of a job cannot be read while `pgjq.worker` is locked; whatever is committed by then is run."""
    client = Client(postgres)
    client.enqueue("q", "a", 1)
    assert run(postgres, Failed(JobError("ValueError", "boom", None)))
    with ThreadPoolExecutor(1) as pool:
        with psycopg.connect(postgres.conninfo) as other:
            other.execute("lock table pgjq.worker in access exclusive mode")
            retrying = pool.submit(client.retry, "q", "a")
            with psycopg.connect(postgres.conninfo, autocommit=True) as observer:
                until(lambda: observer.execute(BLOCKED).rowcount)
            run(postgres, Completed(b"1"))
        assert retrying.result().state == "queued"
