"""`pgjq enqueue`: add one job from the command line, or many from a pipe."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.blocking import drive
from pgjq.cli.command_group import CommandLineError, Refusal
from pgjq.cli.completion import QUEUE_NAME, TASK_NAME
from pgjq.cli.formatting import many, readable
from pgjq.cli.open_storage import with_client
from pgjq.cli.option_tables import JOB, with_settings
from pgjq.cli.param_types import ARGUMENT, DURATION, JSON, KEYWORD, Parsed, read_json
from pgjq.cli.queue_names import report_new_queue
from pgjq.errors import PgjqError
from pgjq.ids import make_ids
from pgjq.job import NewJob, content_id
from pgjq.options import check_task
from pgjq.tasks.call import TaskJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pgjq.cli.output import Output
    from pgjq.client import Client
    from pgjq.job import EnqueueResult

BATCH: Final = 1000


HELP: Final = """\
Add a job to a queue: a JSON PAYLOAD (- reads standard input), or a call of a --task.

A task's worker checks its arguments. One that is not JSON is text; write '"7"' for the text 7. A job whose id is
taken is not added: the output shows the existing job, and the exit code is 0. With --lines jobs are added a thousand
at a time; each thousand is added as a whole or not at all.

\b
Examples:
  pgjq enqueue mail --task receipt --arg 7 --kwarg copy=true
  pgjq enqueue mail '{"order": 7}' --id receipt-7 --priority 10 --delay 5m
  pgjq enqueue mail '{"order": 7}' --run-at 2026-01-31T09:30:00+01:00 --retry-limit 5 --retry-backoff
  pgjq enqueue squares 12 --wait 10s
  pgjq enqueue mail - --lines --content-id < jobs.jsonl
"""


@click.command(help=HELP)
@click.argument("queue", type=QUEUE_NAME)
@click.argument("payload", type=JSON, required=False)
@click.option("--task", type=TASK_NAME, help="The task to run, instead of PAYLOAD.")
@click.option("--arg", "args", type=ARGUMENT, multiple=True, help="An argument of the task: JSON, or text.")
@click.option("--kwarg", "kwargs", type=KEYWORD, multiple=True, help="A keyword argument of the task, as copy=true.")
@click.option("--task-version", type=click.IntRange(1), default=1, show_default=True, help="The task's version.")
@click.option("--id", "job_id", help="Job id; enqueueing it again is a duplicate. Default: a generated id.")
@click.option(
    "--content-id", "named", is_flag=True, help="Derive the id from the payload: the same payload is a duplicate."
)
@click.option("--lines", is_flag=True, help="Read standard input, one payload in each line; PAYLOAD is -.")
@click.option("--wait", type=DURATION, help="Wait up to this long for the result, and print it.")
@with_settings(JOB)
@with_client
def enqueue(
    client: Client,
    output: Output,
    *,
    queue: str,
    payload: Any,
    job_id: str | None,
    named: bool,
    lines: bool,
    wait: float | None,
    settings: dict[str, Any],
    **call: Any,
) -> None:
    """Add a job to a queue: a JSON PAYLOAD, - for standard input, or a call of a --task."""
    payload = _payload_of(payload, **call)
    _check_exclusive(payload, job_id, named=named, lines=lines, wait=wait)
    with report_new_queue(client, output, queue):
        if lines:
            return _enqueue_lines(client, output, queue, named=named, settings=settings)
        job = NewJob if call["task"] is None else TaskJob
        chosen = _id_and_payload(payload, job_id, named=named)
        return _enqueue_one(client, output, queue, job(**chosen, **settings), wait)


def _payload_of(
    payload: Any, *, task: str | None, args: Sequence[Parsed], kwargs: Sequence[tuple[str, Parsed]], task_version: int
) -> Any:
    """Return the payload argument, or that of a task's call."""
    if (payload is None) == (task is None):
        raise click.UsageError(
            "write a PAYLOAD, or --task and its arguments" if task is None else "--task has no PAYLOAD"
        )
    if task is None:
        if args or kwargs or task_version != 1:
            raise click.UsageError("--arg, --kwarg and --task-version are for --task")
        return payload
    named = {name: value.value for name, value in kwargs}
    call: dict[str, Any] = {"task": check_task(task), "args": [value.value for value in args], "kwargs": named}
    return Parsed(call | ({} if task_version == 1 else {"version": task_version}))


def _id_and_payload(payload: Any, job_id: str | None, *, named: bool) -> dict[str, Any]:
    value = payload.value if isinstance(payload, Parsed) else _read_all()
    return {"id": content_id(value) if named else job_id, "payload": value}


def _enqueue_one(client: Client, output: Output, queue: str, job: NewJob, wait: float | None) -> None:
    if wait is None:
        _tell(output, queue, client.enqueue_many(queue, [job])[0])
        return
    job = job if job.id is not None else replace(job, id=next(make_ids()))
    result = drive(client.request_result(queue, job, timeout=wait))
    output.say(readable(result), queue=queue, id=job.id, state="completed", result=result)


def _check_exclusive(payload: Any, job_id: str | None, *, named: bool, lines: bool, wait: float | None) -> None:
    if job_id is not None and named:
        raise click.UsageError("--id and --content-id exclude each other")
    if lines and payload != "-":
        raise click.UsageError("--lines reads standard input: write - as PAYLOAD")
    if lines and (job_id is not None or wait is not None):
        raise click.UsageError("--id and --wait are for one job, not for --lines")


def _tell(output: Output, queue: str, result: EnqueueResult) -> None:
    sentence = {
        "queued": f"queued job {result.id} in queue {queue}",
        "duplicate": f"job {result.id} is in queue {queue} already, {result.existing_state}",
        "completed": f"job {result.id} in queue {queue} has completed: {readable(result.result)}",
    }[result.status]
    output.say(sentence, **_facts(queue, result))


def _facts(queue: str, result: EnqueueResult) -> dict[str, Any]:
    return {"queue": queue, **result._asdict()}


def _enqueue_lines(client: Client, output: Output, queue: str, *, named: bool, settings: dict[str, Any]) -> None:
    counts: Counter[str] = Counter()
    with output.progress("enqueued") as show:
        results = _results(client, queue, _jobs(named=named, settings=settings), counts, show)
        if output.as_json:
            output.rows((_facts(queue, result) for result in results), {})
            return
        total = sum(1 for _ in results)
    there = total - counts["queued"]
    output.say(
        f"queued {many(counts['queued'])} in queue {queue}" + (f"; {there:,} were there already" if there else "")
    )


def _results(
    client: Client, queue: str, jobs: Iterator[NewJob], counts: Counter[str], show: Callable[[int], None]
) -> Iterator[EnqueueResult]:
    try:
        while batch := list(islice(jobs, BATCH)):
            results = client.enqueue_many(queue, batch)
            counts.update(result.status for result in results)
            show(counts.total())
            yield from results
    except (PgjqError, ValueError) as error:
        stands = f"{many(counts.total())} before it were enqueued" if counts else "nothing was enqueued"
        raise (CommandLineError if isinstance(error, ValueError) else Refusal)(f"{error}; {stands}") from error


def _jobs(*, named: bool, settings: dict[str, Any]) -> Iterator[NewJob]:
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            value = _read_line(number, line)
            yield NewJob(content_id(value) if named else None, value, **settings)


def _read_line(number: int, line: str) -> Any:
    try:
        return read_json(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error


def _read_all() -> Any:
    try:
        return read_json(sys.stdin.read())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
