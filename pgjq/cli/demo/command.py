"""The steps of the demo, from an empty directory to the table of checks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import uuid4

import click
from rich.console import Console

from pgjq.blocking import drive
from pgjq.cli.demo.arguments import Assignment
from pgjq.cli.demo.checks import look, table
from pgjq.cli.demo.screen import Bar
from pgjq.cli.demo.storage import open_demo_storage, place
from pgjq.cli.demo.worker_processes import (
    SECONDS,
    WorkerProcess,
    WorkerThreads,
    count_held,
    kill_with_jobs_in_flight,
    started_workers,
    threads,
)
from pgjq.cli.open_storage import with_output
from pgjq.cli.signal_cleanup import clean_exit
from pgjq.client import Client

if TYPE_CHECKING:
    from pgjq.cli.output import Output
    from pgjq.storage.base import Subscription

QUESTION, NUMBER = "the question", 1234
ENDINGS = ("completed", "failed", "cancelled")
PAUSE = 0.001
LEAST_WORK = 2.0  # Seconds: with fewer jobs each takes longer, so that there is time to kill a worker.


@click.command()
@click.option(
    "--jobs", type=click.IntRange(100, 200_000), default=4_000, show_default=True, help="How many jobs to run."
)
@click.option(
    "--url",
    help="Run on this storage instead: a PostgreSQL (the schema pgjq is made there if it is missing), redis://host,"
    " file:///directory or memory: (without the killing). The demo's jobs are removed in the end.",
)
@with_output
def demo(output: Output, *, jobs: int, url: str | None) -> None:
    """Run jobs while a worker is killed, and check the results.

    Starts a PostgreSQL in a temporary directory, two worker processes and a few thousand jobs; sends one request and
    waits for its result; kills one worker with kill -9; and checks that every job has exactly one result. Nothing of it
    stays, and PGJQ_URL is ignored.

    \b
    Examples:
      pgjq demo
      pgjq demo --jobs 20000
      pgjq demo --url file:///tmp/jobs --json
    """  # noqa: D301
    console = Console(highlight=False, stderr=output.as_json)
    fate = "and one of them is killed on the way" if url is None or not url.startswith("memory:") else "as threads"
    console.print(f"[bold]pgjq demo[/]: {jobs:,} jobs, two workers, {fate}.\n")
    with clean_exit(), place(url, console) as name, Client(open_demo_storage(name)) as client:
        demonstration = _Demo(output, console, client, name, jobs)
        try:
            demonstration.tell()
        finally:
            if url is not None:
                demonstration.forget()


class _Demo:
    """One demo: its own queue, two workers, and the messages on the console."""

    def __init__(self, output: Output, console: Console, client: Client, place: str, jobs: int) -> None:
        self._output = output
        self._console = console
        self._client = client
        self._place = place
        self._kills = client.storage.capabilities.processes
        self._queue = f"demo-{uuid4().hex[:8]}"
        self._numbers = {f"job-{number}": number for number in range(1, jobs + 1)}
        self._pause = max(PAUSE, LEAST_WORK / jobs)

    def tell(self) -> None:
        """Run all steps; a failed check is an error."""
        assignments = [self._assignment(1), self._assignment(2)]
        with (
            started_workers(assignments, self._place)
            if self._kills
            else threads(assignments, self._client.storage) as workers
        ):
            self._run(*workers)
        self._judge()

    def forget(self) -> None:
        """Remove the jobs from a database that the user named."""
        ids = [*self._numbers, QUESTION]
        drive(self._client.storage.operations("sync").delete(self._queue, ids))

    def _run(self, first: WorkerProcess | WorkerThreads, second: WorkerProcess | WorkerThreads) -> None:
        self._introduce(first, second)
        self._enqueue()
        with Bar(self._console, self._client, self._queue, len(self._numbers) + 1) as bar:
            bar.follow(0.2, [first, second])
            self._ask()
            bar.follow(0.4, [first, second])
            if isinstance(first, WorkerProcess):
                self._kill(first, second, bar)
            bar.follow(1.0, [second])

    def _introduce(self, first: WorkerProcess | WorkerThreads, second: WorkerProcess | WorkerThreads) -> None:
        if isinstance(first, WorkerProcess) and isinstance(second, WorkerProcess):
            self._say(f"{first.name} and {second.name} are processes {first.pid} and {second.pid}")
        else:
            self._say("jobs in memory are this process's alone: both workers are threads of it, and none is killed")

    def _enqueue(self) -> None:
        begun = time.monotonic()
        self._client.enqueue_many(self._queue, self._numbers.items())
        self._say(f"{len(self._numbers):,} jobs enqueued in {time.monotonic() - begun:.2f} s")

    def _ask(self) -> None:
        """Enqueue a job and wait for its result: listen, enqueue, read."""
        waiting = self._client.get_queue_stats(self._queue).queued
        begun = time.monotonic()
        answers = drive(self._client.storage.operations("sync").subscribe(self._queue))
        try:
            self._client.enqueue(self._queue, QUESTION, NUMBER, priority=100)
            self._await(answers)
        finally:
            drive(answers.close())
        result = self._client.get_result(self._queue, QUESTION)
        took = f"{(time.monotonic() - begun) * 1000:.0f} ms"
        self._say(f"asked for {NUMBER}²: {result}, after {took}, ahead of {waiting:,} waiting jobs")

    def _await(self, answers: Subscription) -> None:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if any(event.id == QUESTION and event.name in ENDINGS for event in drive(answers.next(SECONDS))):
                return
        raise click.ClickException(f"no answer within {SECONDS:g} s")

    def _kill(self, victim: WorkerProcess, survivor: WorkerProcess | WorkerThreads, bar: Bar) -> None:
        held = kill_with_jobs_in_flight(victim, self._client, self._queue)
        begun = time.monotonic()
        self._say(f"[red]kill -9 {victim.pid}[/]: {victim.name} is gone, with {held} jobs in flight")
        bar.follow_until(lambda _: count_held(victim, self._client, self._queue) == 0, [survivor])
        self._say(f"their leases expired, and {survivor.name} took them back, {time.monotonic() - begun:.1f} s later")

    def _judge(self) -> None:
        expected = {name: number * number for name, number in {**self._numbers, QUESTION: NUMBER}.items()}
        checks = look(self._client, self._queue, expected, killed=self._kills)
        if self._output.as_json:
            self._output.rows(checks, {})
        else:
            self._console.print(table(checks))
        if any(check.ok is False for check in checks):
            raise click.ClickException("these results are wrong; please report it with the lines above")

    def _assignment(self, number: int) -> Assignment:
        return Assignment(f"worker {number}", self._queue, self._pause)

    def _say(self, text: str) -> None:
        self._console.print(f"  {text}", soft_wrap=True)
