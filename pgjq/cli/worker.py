"""`pgjq worker`: run the handlers of the queues in a module."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.command_group import CommandLineError, Refusal
from pgjq.cli.completion import MODULE_QUEUES, complete_targets
from pgjq.cli.formatting import duration, many
from pgjq.cli.log_output import logger, with_log
from pgjq.cli.open_storage import kind_of
from pgjq.cli.param_types import DURATION, PORT, SIZE
from pgjq.cli.queue_import import find_queues
from pgjq.cli.reload import Reloader
from pgjq.cli.run_until_signal import check_storage, run, run_until
from pgjq.deadline import Deadline, bounded
from pgjq.errors import StorageUnavailableError
from pgjq.probes import serve_worker
from pgjq.queue import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pgjq.lease import LeasePolicy
    from pgjq.queue import AsyncQueue, Queue
    from pgjq.storage.base import Storage

# How long closing the storage may wait for a server.
CLOSE_SECONDS: Final = 0.25

HELP: Final = """\
Run the tasks and handlers of queues, until SIGTERM or Ctrl-C.

MODULE stands for every queue with tasks or a handler in your module, MODULE:QUEUE for one Queue or AsyncQueue in it,
or for a list of them. The current directory is importable. A queue has its storage, so there is no --url here: let
the module read PGJQ_URL. Queues of one worker share one storage object and one lease policy, and take turns.

After a signal the worker claims no more jobs, and running jobs have --grace to end; then it releases those that have
not ended, and the exit code is 0. A second signal exits at once; other workers reap the jobs when their leases lapse.

A process that reaches --max-jobs or --max-memory claims nothing more, lets its running jobs end, and is replaced.
With --drain it exits once no job of its queues is due and none is running; jobs that are due later stay. At the
--deadline running jobs are released, unless --grace gives them time to end.

With --processes, each process takes the first free port from --health-port and --metrics-port on.

\b
Examples:
  pgjq worker shop.tasks
  pgjq worker shop.tasks --queue mail --queue orders --concurrency 20 --processes 4
  pgjq worker shop.tasks:mail --grace 5m --json
  pgjq worker shop.tasks --max-jobs 10000 --max-memory 512M
  pgjq worker shop.tasks --drain --deadline 10m
  pgjq worker shop.tasks --setup django:setup --reload
  pgjq worker shop.tasks --health-port 8080
"""


@click.command(help=HELP)
@click.argument("targets", nargs=-1, required=True, metavar="MODULE[:QUEUE]...", shell_complete=complete_targets)
@click.option(
    "--queue", "names", multiple=True, help="Serve only this queue; may be given several times.", **MODULE_QUEUES
)
@click.option("--setup", metavar="MODULE:FUNCTION", help="Call a function before the import, such as django:setup.")
@click.option("--concurrency", type=int, help="Jobs at a time in each process (default: the sum over the queues).")
@click.option(
    "--processes", type=int, default=1, show_default=True, help="Number of processes; a process that dies is replaced."
)
@click.option("--grace", type=DURATION, help="Time for running jobs to end (default: the longest of the queues).")
@click.option("--strict", is_flag=True, help="Serve a queue only while those named before it have nothing to run.")
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a process after so many jobs.")
@click.option(
    "--max-memory", type=SIZE, help="Replace a process that uses more memory, such as 512M, once its jobs end."
)
@click.option("--drain", is_flag=True, help="Work until nothing is due, then exit.")
@click.option("--deadline", type=DURATION, help="With --drain: exit after this time, even if jobs are due.")
@click.option("--reload", "reloads", is_flag=True, help="Start again when the code changes; for development.")
@click.option("--health-port", type=PORT, help="Serve /live, /ready and /metrics on this port; 0: any free one.")
@click.option("--metrics-port", type=PORT, help="Serve /metrics on this port; 0: any free one.")
@click.option("--probe-host", default="0.0.0.0", show_default=True, help="Address for both.")  # noqa: S104
@with_log
def worker(
    begin_log: Callable[[], None],
    *,
    targets: tuple[str, ...],
    names: tuple[str, ...],
    setup: str | None,
    grace: float | None,
    deadline: float | None,
    reloads: bool,
    health_port: int | None,
    metrics_port: int | None,
    probe_host: str,
    **options: Any,
) -> None:
    """Run the tasks and handlers of queues, until SIGTERM or Ctrl-C."""
    if deadline is not None and not options["drain"]:
        raise click.UsageError("--deadline is for --drain")
    if reloads:
        begin_log()
        Reloader(Path.cwd()).run()
        return
    queues = find_queues(targets, setup=setup, names=names)
    begin_log()
    with _closed_soon(queues[0].storage):
        worker = _make_worker(queues, grace, **options)
        if health_port is not None or metrics_port is not None:
            serve_worker(worker, health_port=health_port, metrics_port=metrics_port, host=probe_host)
        _check(queues[0])
        _run(worker, deadline, grace)


@contextmanager
def _closed_soon(storage: Storage) -> Generator[None]:
    """Close a storage after the block, without waiting for a server that does not answer.

    The process ends after it.
    """
    try:
        yield
    finally:
        with bounded(Deadline(CLOSE_SECONDS)):
            storage.close()


def _run(worker: Worker, deadline: float | None, grace: float | None) -> None:
    if not worker.storage.capabilities.processes:
        logger.warning("jobs in memory belong to this process: only jobs that its own code enqueues will run")
    stopping = f"stopping: running jobs have {duration(worker.grace)}, a second signal exits now"
    if deadline is None:
        run(worker, _started(worker), stopping)
    else:
        run_until(worker, _started(worker), stopping, deadline, grace)


def _check(queue: Queue | AsyncQueue) -> None:
    try:
        check_storage(queue.storage)
    except StorageUnavailableError as error:
        raise Refusal(f"{error} (check the storage of queue {queue.name} in the code)") from error


def _make_worker(
    queues: Sequence[Queue | AsyncQueue], grace: float | None, *, concurrency: int | None, **options: Any
) -> Worker:
    return Worker(
        *queues,
        concurrency=sum(queue.concurrency for queue in queues) if concurrency is None else concurrency,
        grace=max(queue.grace for queue in queues) if grace is None else grace,
        lease_policy=_policy(queues),
        **options,
    )


def _policy(queues: Sequence[Queue | AsyncQueue]) -> LeasePolicy:
    """Return the policy that the queues share: a worker claims for all of them at once."""
    first, *others = queues
    for queue in others:
        if queue.lease_policy != first.lease_policy:
            raise CommandLineError(
                f"{first.name} and {queue.name} have different lease policies; run a worker for each"
            )
        if queue.storage is not first.storage:
            raise CommandLineError(
                f"{first.name} and {queue.name} have different storages; create one for both, or run a worker for each"
            )
    return first.lease_policy


def _started(worker: Worker) -> str:
    names = ", ".join(queue.name for queue in worker.queues)
    where = f"serves {names} on {kind_of(worker.storage)}"
    if worker.processes > 1:
        return f"worker {where}: {worker.processes} processes with {many(worker.concurrency)} each"
    return f"worker {worker.queues[0].worker_id} {where}: {many(worker.concurrency)} at a time"
