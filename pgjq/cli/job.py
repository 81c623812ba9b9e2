"""Commands on one job, by queue and id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import click

from pgjq.cli.command_group import NO, Refusal
from pgjq.cli.completion import QUEUE_NAME
from pgjq.cli.formatting import readable, shown
from pgjq.cli.open_storage import with_client
from pgjq.cli.param_types import MOMENT
from pgjq.cli.queue_names import check_queue_exists
from pgjq.errors import JobNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pgjq.cli.output import Output
    from pgjq.client import Client
    from pgjq.job import JobStatus


def _of_a_job(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments QUEUE and ID, and the options of every command with a client."""
    return click.argument("queue", type=QUEUE_NAME)(click.argument("job_id", metavar="ID")(with_client(command)))


@click.command()
@_of_a_job
def status(client: Client, output: Output, *, queue: str, job_id: str) -> None:
    """Tell what is known of a job, and how each of its runs ended.

    \b
    Examples:
      pgjq status mail receipt-7
      pgjq status mail receipt-7 --json
    """  # noqa: D301
    found = _require_status(client, client.get_status(queue, job_id), queue, job_id)
    output.record(found, history=client.get_attempts(queue, job_id))


@click.command()
@_of_a_job
def result(client: Client, output: Output, *, queue: str, job_id: str) -> None:
    """Print a completed job's result, as JSON.

    The exit code is 1 if there is none: the job has not completed, or its result's time to live has passed. A result
    that was not written as JSON is shown as base64.

    \b
    Examples:
      pgjq result squares the-question
      pgjq result squares the-question --json
    """  # noqa: D301
    missing = object()
    value: Any = client.get_result(queue, job_id, missing)
    if value is missing:
        _explain(_require_status(client, client.get_status(queue, job_id), queue, job_id))
    output.say(readable(value), queue=queue, id=job_id, state="completed", result=value)


@click.command()
@click.option("--active", is_flag=True, help="Ask a running job to end, too.")
@_of_a_job
def cancel(client: Client, output: Output, *, queue: str, job_id: str, active: bool) -> None:
    """Withdraw a job that has not run yet.

    A running job is left alone, unless --active asks it to end: its worker sets the abort signal, and the job ends
    as cancelled when its handler ends. The exit code is 1 if the job was not changed.

    \b
    Examples:
      pgjq cancel mail receipt-7
      pgjq cancel video encode-12 --active
    """  # noqa: D301
    answer = client.cancel(queue, job_id, active=active).status
    if answer == "not_found":
        check_queue_exists(client, queue)
    sentence = {
        "cancelled": f"cancelled job {job_id} in queue {queue}",
        "not_found": f"there is no job {job_id} in queue {queue}",
        "processing": f"job {job_id} in queue {queue} is running" + ("; it was asked to end" if active else ""),
    }.get(answer, f"job {job_id} in queue {queue} has {answer} already")
    output.say(sentence, queue=queue, id=job_id, status=answer)
    if answer != "cancelled" and not (active and answer == "processing"):
        raise click.exceptions.Exit(NO)


@click.command()
@_of_a_job
def retry(client: Client, output: Output, *, queue: str, job_id: str) -> None:
    """Put a failed or cancelled job back in its place, with all its attempts.

    The exit code is 1 if there is no such job, if it has completed, or if its queue's policy has no place for it.

    \b
    Examples:
      pgjq retry mail receipt-7
      pgjq jobs retry --queue mail --state failed
    """  # noqa: D301
    try:
        found = client.retry(queue, job_id)
    except JobNotFoundError:
        check_queue_exists(client, queue)
        raise
    output.say(f"job {job_id} in queue {queue} is {found.state}", queue=queue, id=job_id, state=found.state)


@click.command()
@_of_a_job
def release(client: Client, output: Output, *, queue: str, job_id: str) -> None:
    """Take a running job away from its worker, and queue it again without counting the attempt.

    Its run goes on until its handler notices, and what it returns is refused. The exit code is 1 if the job is not
    running.

    \b
    Examples:
      pgjq release video encode-12
    """  # noqa: D301
    if not client.release(queue, job_id):
        found = _require_status(client, client.get_status(queue, job_id), queue, job_id)
        raise Refusal(f"job {job_id!r} in queue {queue!r} is not running: it is {found.state}")
    output.say(f"released job {job_id} in queue {queue}", queue=queue, id=job_id, released=True)


@click.command()
@click.option("--run-at", type=MOMENT, help="When the job may run; a time in the past means now.")
@click.option("--priority", type=int, help="Jobs with a higher priority run first.")
@_of_a_job
def reschedule(
    client: Client, output: Output, *, queue: str, job_id: str, run_at: datetime | None, priority: int | None
) -> None:
    """Change when a waiting job may run, or its priority.

    The exit code is 1 if there is no such job, or if it does not wait.

    \b
    Examples:
      pgjq reschedule mail receipt-7 --run-at 2026-01-31T09:30:00+01:00
      pgjq reschedule mail receipt-7 --priority 10
    """  # noqa: D301
    found = client.reschedule(queue, job_id, run_at=run_at, priority=priority)
    at = "" if found.run_at is None else found.run_at.isoformat(timespec="seconds")
    output.say(
        f"job {job_id} in queue {queue} may run at {at} with priority {found.priority}",
        queue=queue,
        id=job_id,
        run_at=at,
        priority=found.priority,
    )


@click.command()
@_of_a_job
def delete(client: Client, output: Output, *, queue: str, job_id: str) -> None:
    """Forget a job that is not running, and its id.

    \b
    Examples:
      pgjq delete mail receipt-7
      pgjq jobs delete --queue mail --state cancelled
    """  # noqa: D301
    if not client.delete_job(queue, job_id):
        _require_status(client, client.get_status(queue, job_id), queue, job_id)
        raise Refusal(f"job {job_id!r} in queue {queue!r} is running; cancel it first, with --active")
    output.say(f"deleted job {job_id} from queue {queue}", queue=queue, id=job_id, deleted=True)


def _require_status(client: Client, found: JobStatus | None, queue: str, job_id: str) -> JobStatus:
    if found is None:
        check_queue_exists(client, queue)
        raise JobNotFoundError(f"there is no job {job_id!r} in queue {queue!r}")
    return found


def _explain(found: JobStatus) -> NoReturn:
    """Raise an error that says why a job has no result."""
    if found.state == "completed":
        raise Refusal(f"job {found.id!r} has completed, but its result's time to live has passed")
    why = f", {shown('error', found.error)}" if found.error is not None else ""
    raise Refusal(f"job {found.id!r} has no result: it is {found.state}{why}")
