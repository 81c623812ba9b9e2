"""Check the demo's results: read every job, count, and compare with the expected results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pgjq.client import Client
    from pgjq.job import JobStatus


@dataclass(frozen=True, slots=True)
class Check:
    """A line of the table; `ok` is None where nothing is checked."""

    label: str
    value: int
    ok: bool | None = None


def look(client: Client, queue: str, expected: Mapping[str, int], *, killed: bool) -> list[Check]:
    """Compare the stored results with the expected ones, by id; `killed`: a worker was killed."""
    jobs = list(_every_job(client, queue))
    stats = client.get_queue_stats(queue)
    completed = {job.id: job.result for job in jobs if job.state == "completed"}
    wrong = sum(completed.get(job_id) != result for job_id, result in expected.items())
    unfinished = stats.queued + stats.processing + stats.failing
    taken_back = sum(job.stalled > 0 for job in jobs)
    return [
        Check("jobs enqueued", len(expected)),
        Check(
            "jobs completed, with one result each",
            stats.completed,
            _is_one_each(completed, stats.completed, expected),
        ),
        Check("jobs failed or cancelled", stats.failed + stats.cancelled, stats.failed + stats.cancelled == 0),
        Check("jobs not finished", unfinished, unfinished == 0),
        Check("results wrong or missing", wrong, wrong == 0),
        Check("jobs taken back, and run again", taken_back, (taken_back > 0) == killed),
        *(Check(f"jobs completed by {name}", count) for name, count in _by_worker(jobs)),
        Check("jobs per second, the outage included", round(len(completed) / _seconds(jobs))),
    ]


def table(checks: list[Check]) -> Table:
    """Draw the checks."""
    drawn = Table(box=SIMPLE_HEAD)
    drawn.add_column("what the database says now")
    drawn.add_column("", justify="right")
    drawn.add_column("")
    for check in checks:
        drawn.add_row(check.label, f"{check.value:,}", _mark(check.ok))
    return drawn


def _is_one_each(completed: Mapping[str, object], count: int, expected: Mapping[str, int]) -> bool:
    return count == len(expected) and completed.keys() == expected.keys()


def _every_job(client: Client, queue: str) -> Iterator[JobStatus]:
    after: int | None = 0
    while after is not None:
        page = client.find_jobs(queue, after=after, limit=5000)
        yield from page
        after = page.next


def _by_worker(jobs: list[JobStatus]) -> list[tuple[str, int]]:
    return sorted(Counter(job.worker for job in jobs if job.worker is not None).items())


def _seconds(jobs: list[JobStatus]) -> float:
    """Return the seconds from the first start to the last end, by the database's clock."""
    starts = [job.started_at for job in jobs if job.started_at is not None]
    ends = [job.finished_at for job in jobs if job.finished_at is not None]
    return (max(ends) - min(starts)).total_seconds() if starts and ends else 1.0


def _mark(ok: bool | None) -> str:  # noqa: FBT001  (one value of a check)
    if ok is None:
        return ""
    return "[green]right[/]" if ok else "[red]wrong[/]"
