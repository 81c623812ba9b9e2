"""Move the jobs that wait in another system to pgjq, while no worker of that system runs.

Each function returns how many jobs it moved. A job becomes a call of the task with the same name, under an id that is
made of its old one: a run that was interrupted is repeated without making a job twice. From procrastinate and pg-boss
the move is one transaction; from RQ and Celery a job is removed there once it is in pgjq.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

    import pgjq


def from_procrastinate(connection: psycopg.Connection[Any], client: pgjq.Client) -> int:
    """Move what waits in procrastinate's tables; a lock becomes the key of the job."""
    moved = connection.execute(
        "delete from procrastinate_jobs where status = 'todo'"
        " returning id, queue_name, task_name, args, priority, lock, scheduled_at"
    ).fetchall()
    for number, queue, task, kwargs, priority, lock, at in sorted(moved):
        payload = {"task": task.rpartition(".")[2], "args": [], "kwargs": kwargs}
        options: dict[str, Any] = {"priority": priority, "singleton_key": lock, "run_at": at}
        client.enqueue(queue, f"procrastinate-{number}", payload, connection=connection, **options)
    return len(moved)


def from_pgboss(connection: psycopg.Connection[Any], client: pgjq.Client) -> int:
    """Move what waits in pg-boss's tables; the data of a job is its payload."""
    moved = connection.execute(
        "delete from pgboss.job where state in ('created', 'retry')"
        " returning id::text, name, data, priority, start_after, singleton_key"
    ).fetchall()
    for job, queue, data, priority, at, key in moved:
        options: dict[str, Any] = {"priority": priority, "singleton_key": key, "run_at": at}
        client.enqueue(queue, f"pgboss-{job}", data, connection=connection, **options)
    return len(moved)


def from_rq(queue: Any, client: pgjq.Client) -> int:
    """Move what waits in an `rq.Queue`, also what is scheduled."""
    registry = queue.scheduled_job_registry
    times = {job: registry.get_scheduled_time(job) for job in registry.get_job_ids()}
    ids = [*queue.job_ids, *times]
    for job_id in ids:
        job = queue.fetch_job(job_id)
        payload = {"task": job.func_name.rpartition(".")[2], "args": list(job.args), "kwargs": job.kwargs}
        client.enqueue(queue.name, f"rq-{job_id}", payload, run_at=times.get(job_id))
        job.delete()
    return len(ids)


def from_celery(app: Any, queue: str, client: pgjq.Client) -> int:
    """Move the messages that wait in a queue of a Celery app, with any broker; serializers must be allowed to read."""
    moved = 0
    with app.connection_for_read() as connection:
        waiting = connection.SimpleQueue(queue, serializer="json")
        while True:
            try:
                message = waiting.get(block=False)
            except waiting.Empty:
                waiting.close()
                return moved
            args, kwargs, _ = message.payload
            task, eta = message.headers["task"].rpartition(".")[2], message.headers.get("eta")
            payload = {"task": task, "args": list(args), "kwargs": kwargs}
            at = None if eta is None else datetime.fromisoformat(eta).astimezone(UTC)
            client.enqueue(queue, f"celery-{message.headers['id']}", payload, run_at=at)
            message.ack()
            moved += 1
