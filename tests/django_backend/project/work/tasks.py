"""Tasks of every kind."""

import os

from django.contrib.auth.models import Group
from django.db import connection, transaction

import pgjq

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

ran: list[object] = []


@task
def add(a: int, b: int = 0) -> int:
    ran.append((a, b))
    return a + b


@task(queue_name="mail")
def mail(text: str) -> str:
    return text


@task
def fails() -> None:
    ran.append("fails")
    message = "no"
    raise LookupError(message)


@task
def divide(a: int, b: int) -> float:
    return a / b


@task
def tuned() -> None: ...


@task(takes_context=True)
def attempt(context: object, wanted: int) -> list[object]:
    if context.attempt < wanted:
        message = "again"
        raise ValueError(message)
    result = context.task_result
    return [context.attempt, len(result.errors), len(result.worker_ids), result.status]


@task
async def group_exists(name: str) -> bool:
    return await Group.objects.filter(name=name).aexists()


@task
def unserializable() -> object:
    ran.append("unserializable")
    return object()


@task
def snoozes() -> int:
    ran.append("snoozes")
    if ran.count("snoozes") == 1:
        raise pgjq.Snooze(0)
    return 1


@task
def make_group(name: str) -> int:
    return Group.objects.create(name=name).pk


@task
def break_connection() -> int:
    """Have the server end this thread's connection, and leave that to the next run."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        (pid,) = cursor.fetchone()
    import psycopg

    with psycopg.connect(dbname=connection.settings_dict["NAME"], autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [pid])
    return os.getpid()


@task
def leave_transaction_open() -> int:
    transaction.atomic().__enter__()
    Group.objects.create(name="never committed")
    return os.getpid()


@task
def wait_for_file(path: str) -> str:
    job = pgjq.current_job()
    with open(f"{path}.started", "w"):
        pass
    while not os.path.exists(path) and not job.signal.wait(0.02):
        pass
    return "aborted" if job.signal.aborted else "done"


@task(backend="other")
def elsewhere() -> str:
    return "elsewhere"


@task(backend="memory")
def in_memory(a: int) -> int:
    ran.append(a)
    return a
