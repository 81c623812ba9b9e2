"""`pgjq worker`: run the handlers of the queues in a module."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from pgjq.cli.log import logger, with_log
from pgjq.cli.param_types import DURATION
from pgjq.cli.queue_import import find_queues
from pgjq.cli.root import Misuse, Refusal
from pgjq.cli.run import check_storage, run
from pgjq.cli.storage import kind_of
from pgjq.cli.text import duration, many
from pgjq.errors import StorageUnavailableError
from pgjq.queue import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.lease import LeasePolicy
    from pgjq.queue import AsyncQueue, Queue


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="MODULE:QUEUE...")
@click.option("--concurrency", type=int, help="Jobs at a time in each process; by default what the queues say, summed.")
@click.option(
    "--processes", type=int, default=1, show_default=True, help="How many processes; those that die are replaced."
)
@click.option("--grace", type=DURATION, help="How long running jobs may take to end; by default what the queues say.")
@click.option("--strict", is_flag=True, help="Serve a queue only while those named before it have nothing to run.")
@with_log
def worker(
    begin_log: Callable[[], None],
    *,
    targets: tuple[str, ...],
    concurrency: int | None,
    processes: int,
    grace: float | None,
    strict: bool,
) -> None:
    """Run the handlers of queues, until SIGTERM or Ctrl-C.

    MODULE:QUEUE names a Queue or AsyncQueue, or a list of them, in a module of yours; MODULE alone is every queue with
    a handler in it. The current directory is importable. A queue brings its storage along, so there is no --url here:
    let the module read PGJQ_URL. Queues of one worker share one storage object and one lease policy, and take turns.

    When told to stop, it claims nothing more, and running jobs have --grace to end; what has not ended by then is given
    back. The exit code is 0 then. A second signal exits at once, and other workers take the jobs back when their leases
    lapse.

    \b
    Examples:
      pgjq worker shop.tasks:mail
      pgjq worker shop.tasks:mail shop.tasks:orders --concurrency 20 --processes 4
      pgjq worker shop.tasks --grace 5m --json
    """  # noqa: D301
    queues = find_queues(targets)
    begin_log()
    with closing(queues[0].storage) as storage:
        crew = _crew(queues, concurrency, processes, grace, strict=strict)
        _check(queues[0])
        if not storage.capabilities.processes:
            logger.warning("jobs in memory are this process's alone: only what its own code enqueues will run")
        run(crew, _started(crew), f"stopping: running jobs have {duration(crew.grace)}, a second signal exits now")


def _check(queue: Queue | AsyncQueue) -> None:
    try:
        check_storage(queue.storage)
    except StorageUnavailableError as error:
        raise Refusal(f"{error} (look at the storage that queue {queue.name} is made with)") from error


def _crew(
    queues: Sequence[Queue | AsyncQueue],
    concurrency: int | None,
    processes: int,
    grace: float | None,
    *,
    strict: bool,
) -> Worker:
    return Worker(
        *queues,
        concurrency=sum(queue.concurrency for queue in queues) if concurrency is None else concurrency,
        processes=processes,
        grace=max(queue.grace for queue in queues) if grace is None else grace,
        lease_policy=_policy(queues),
        strict=strict,
    )


def _policy(queues: Sequence[Queue | AsyncQueue]) -> LeasePolicy:
    """Return the policy that the queues share: a worker claims for all of them at once."""
    first, *others = queues
    for queue in others:
        if queue.lease_policy != first.lease_policy:
            raise Misuse(f"{first.name} and {queue.name} have different lease policies; run a worker for each")
        if queue.storage is not first.storage:
            raise Misuse(
                f"{first.name} and {queue.name} have a storage each; make one for both, or run a worker for each"
            )
    return first.lease_policy


def _started(crew: Worker) -> str:
    names = ", ".join(queue.name for queue in crew.queues)
    where = f"serves {names} on {kind_of(crew.storage)}"
    if crew.processes > 1:
        return f"worker {where}: {crew.processes} processes with {many(crew.concurrency)} each"
    return f"worker {crew.queues[0].worker_id} {where}: {many(crew.concurrency)} at a time"
