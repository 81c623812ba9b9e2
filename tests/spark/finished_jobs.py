"""A past for Spark to look at: jobs that ended in every way, made by the storage itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

import pgjq
from pgjq.blocking import drive
from pgjq.job import JobError
from pgjq.lease import LeasePolicy
from pgjq.outcome import Completed, Failed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from pgjq.outcome import Outcome
    from pgjq.storage.base import Settled

BOOM = Failed(JobError("Boom", "it went 'bang'", "line 1\nline 2"))


def ask(url: str, question: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question, values).fetchall()


def do(url: str, command: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(command)


def end(storage: pgjq.PostgresStorage, queue: str, outcome: Outcome, limit: int = 1000) -> list[Settled]:
    """Claim what is due and end it."""
    operations = storage.operations("sync")
    claimed = drive(operations.claim([queue], worker="worker-1", limit=limit, policy=LeasePolicy()))
    return drive(operations.settle([Settlement(job.lease, outcome) for job in claimed]))


def finish(storage: pgjq.PostgresStorage, queue: str, ids: Iterable[str]) -> None:
    """Enqueue jobs and complete them, all in one transaction of the settlement."""
    with_queue = pgjq.Queue(queue, storage=storage)
    with_queue.enqueue_many((job_id, {"of": job_id}) for job_id in ids)
    end(storage, queue, Completed(b"1"))


def load(spark: SparkSession, url: str, **options: Any) -> DataFrame:
    return spark.read.format("pgjq").options(url=url, **options).load()
