"""Enqueue 50,000 jobs of three tasks, and watch them run with a progress bar.

`enqueue_many` takes calls of any tasks of a queue, a thousand at a time here. The bar reads the numbers of the queue
twice a second, so it costs the same for ten jobs and for ten million.

    pgjq worker fan_out --processes 2 &
    python fan_out.py                     # or: python fan_out.py 1000
"""

from __future__ import annotations

import os
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING

from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeRemainingColumn

import pgjq

if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = 50_000
BATCH = 1_000

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)
work = pgjq.Queue("fan-out", storage=storage, concurrency=50)


@work.task
async def resize(image: int, *, width: int = 200) -> str:
    """Name the picture that a real task would make."""
    return f"{image}-{width}.png"


@work.task(priority=5)
async def index(article: int) -> int:
    """Return the length of what a real task would index."""
    return len(f"article {article}")


@work.task
def total(*amounts: float) -> float:
    """Add up amounts, on a thread."""
    return sum(amounts)


def calls(count: int) -> Iterator[pgjq.Call]:
    """Mix the three tasks."""
    for number in range(count):
        match number % 3:
            case 0:
                yield resize.call(number, width=100 + number % 900)
            case 1:
                yield index.call(number)
            case _:
                yield total.call(number, 0.5)


def main(count: int = JOBS) -> None:
    """Enqueue the jobs, and wait until none is left."""
    before = finished()
    columns = (SpinnerColumn(), *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        enqueued = progress.add_task("enqueued", total=count)
        done = progress.add_task("done", total=count)
        rest = calls(count)
        while batch := list(islice(rest, BATCH)):
            work.enqueue_many(batch)
            progress.advance(enqueued, len(batch))
            progress.update(done, completed=finished() - before)
        while (ended := finished() - before) < count:
            progress.update(done, completed=ended)
            time.sleep(0.5)
        progress.update(done, completed=count)
    print(f"{work.client.get_queue_stats(work.name).failed} failed")


def finished() -> int:
    """Count the jobs that have ended."""
    stats = work.client.get_queue_stats(work.name)
    return stats.completed + stats.failed


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
    storage.close()
