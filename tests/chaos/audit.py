"""What must hold when the faults are over. Each check returns the stories of what does not."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pgjq import PgjqError
from pgjq.storage.file.journal_format import decode_line
from tests.chaos.roles import CALL_SECONDS
from tests.chaos.servers import FileServers, PostgresServers
from tests.chaos.spaces import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq import Client, JobStatus
    from tests.chaos.fleet import Fleet, Measure
    from tests.chaos.servers import Servers

DRAIN_SECONDS = 90.0
LATE_SECONDS = CALL_SECONDS + 4
# Pools open connections as they are needed, each pool with threads of its own.
GROWTH_MB, GROWTH_THREADS = 25.0, 16
GROWTH_SOCKETS = 2 * 10 + 4  # The pools of both modes may be nearly empty at first and full later.
LINES_PER_FAULT = 20
DISORDER = """
    select key, number, before, ended_before, started from (
        select *, lag(number) over same_key as before, lag(ended) over same_key as ended_before
        from keyed window same_key as (partition by key order by position)
    ) as k
    where number <> coalesce(before + 1, 0) or started < ended_before
"""
EVENT = re.compile(r"\d{4}-\d\d-\d\d ")  # What a log line begins with; a line of a traceback does not.
Stories = list[str]


class Audit:
    """The state of all queues after the drain, against what processes recorded."""

    def __init__(self, servers: Servers, fleet: Fleet, client: Client) -> None:
        self._servers = servers
        self._fleet = fleet
        self._client = client
        self.queues = ("work", "keyed") if client.storage.capabilities.definitions else ("work",)
        self._jobs: dict[tuple[str, str], JobStatus] = {}
        self._acknowledged: set[tuple[str, str]] = set()

    def drain(self) -> None:
        """Wait until no job is left to run, for a bounded time, and read everything."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline and not self._is_drained():
            time.sleep(0.1)
        for queue in self.queues:
            self._jobs |= {(queue, job.id): job for job in self._read(queue)}
        for name in self._fleet.names:
            for line in self._fleet.lines(name, "acknowledged"):
                queue, job_id = line.split()
                self._acknowledged.add((queue, job_id))

    def lost(self) -> Stories:
        """Return acknowledged jobs that did not end as completed, and completed ones whose effect is not there."""
        stories = [
            f"{queue}/{job_id} was acknowledged and is {self._describe(queue, job_id)}"
            for queue, job_id in sorted(self._acknowledged)
            if (queue, job_id) not in self._jobs or self._jobs[queue, job_id].state in ("failed", "cancelled")
        ]
        effects = self._effects()
        if effects is not None:
            stories += [
                f"work/{job_id} is completed and has no effect"
                for (queue, job_id), job in self._jobs.items()
                if queue == "work" and job.state == "completed" and job_id not in effects
            ]
        return stories

    def doubled(self) -> Stories:
        """Return jobs with more effects than one, or one of a run that was not the one recorded."""
        effects = self._effects()
        if effects is None:
            return [
                f"{queue}/{job_id} has the result of lease {job.result} and was completed under lease {job.lease}"
                for (queue, job_id), job in self._jobs.items()
                if job.state == "completed" and job.result != job.lease
            ]
        return [
            f"work/{job_id} has effects under leases {leases}; the record: {self._describe('work', job_id)}"
            for job_id, leases in effects.items()
            if leases != [self._jobs["work", job_id].lease if ("work", job_id) in self._jobs else None]
        ]

    def stuck(self) -> Stories:
        """Return jobs that could run and did not end."""
        states = ("queued", "processing", "failing")
        return [
            f"{queue}/{job_id} is still {self._describe(queue, job_id)}"
            for (queue, job_id), job in self._jobs.items()
            if job.state in states and (queue, job_id) in self._acknowledged
        ] + [f"queue {queue} has jobs left: {counts}" for queue, counts in self._left().items()]

    def disordered(self) -> Stories:
        """Return jobs of a key that ran before their turn, or beside another one of their key."""
        if not isinstance(self._servers, PostgresServers):
            return list(_disorder(job for (queue, _), job in self._jobs.items() if queue == "keyed"))
        rows = self._servers.cluster.primary.execute(DISORDER)
        return [f"key {row[0]}: number {row[1]} follows {row[2]}; ended {row[3]}, started {row[4]}" for row in rows]

    def wrong_answers(self) -> Stories:
        """Return answers that callers got and did not ask for, and those that came too late."""
        stories: Stories = []
        for name in self._fleet.names:
            for line in self._fleet.lines(name, "answers"):
                at, seconds, outcome = line.split(" ", 2)
                if outcome.startswith("wrong"):
                    stories.append(f"{name} at {at}: {outcome}")
                elif float(seconds) > LATE_SECONDS:
                    stories.append(f"{name} at {at}: {outcome} after {seconds} s, the time-out is {CALL_SECONDS} s")
        return stories

    def unhandled(self) -> Stories:
        """Return what processes wrote to stderr: exceptions that were caught nowhere, and threads that died."""
        found = {name: self._fleet.lines(name, "stderr") for name in self._fleet.names}
        stories = [f"{name} wrote to stderr:\n" + "\n".join(lines[:40]) for name, lines in found.items() if lines]
        complaints = self._fleet.complaints()
        return stories + ([f"the parent process wrote to stderr:\n{complaints}"] if complaints else [])

    def grown(self, before: dict[str, Measure], after: dict[str, Measure]) -> Stories:
        """Return the processes that use more memory, threads or sockets than after their start."""
        return [
            f"{name} grew from {was} to {now}"
            for name, was in before.items()
            if (now := after[name]).rss_mb > was.rss_mb + GROWTH_MB
            or now.threads > was.threads + GROWTH_THREADS
            or now.sockets > was.sockets + GROWTH_SOCKETS
        ]

    def noisy(self, faults: int) -> Stories:
        """Return the processes that logged more than so many events for each fault."""
        counts = {name: self._count_events(name) for name in self._fleet.names}
        bound = LINES_PER_FAULT * (faults + 1)
        return [f"{name} logged {lines} events in {faults} faults" for name, lines in counts.items() if lines > bound]

    def summary(self) -> str:
        """Say how much there was to check."""
        states = Counter(job.state for job in self._jobs.values())
        answers = Counter(
            line.split(" ", 2)[2] for name in self._fleet.names for line in self._fleet.lines(name, "answers")
        )
        logged = sum(self._count_events(name) for name in self._fleet.names)
        return (
            f"{len(self._acknowledged):,} acknowledged; jobs {dict(states)}; answers {dict(answers)};"
            f" {logged:,} events logged"
        )

    def _count_events(self, name: str) -> int:
        return sum(EVENT.match(line) is not None for line in self._fleet.lines(name, "log"))

    def damaged(self) -> Stories:
        """Return what is wrong with the journal of a FileStorage: lines that cannot be read, files put aside."""
        if not isinstance(self._servers, FileServers):
            return []
        directory = self._servers.directory / MAIN
        lines = (directory / "journal").read_bytes().splitlines()
        unread = [f"the journal has a damaged line: {line[:200]!r}" for line in lines if decode_line(line) is None]
        return unread + [f"{path} was put aside" for path in (directory / "aside").iterdir()]

    def _effects(self) -> dict[str, list[int]] | None:
        if not isinstance(self._servers, PostgresServers):
            return None
        found: defaultdict[str, list[int]] = defaultdict(list)
        for job_id, lease in self._servers.cluster.primary.execute("select id, lease from effect"):
            found[str(job_id)].append(int(str(lease)))
        return found

    def _describe(self, queue: str, job_id: str) -> str:
        job = self._jobs.get((queue, job_id))
        return "not there" if job is None else f"{job.state}: {job!r}"

    def _left(self) -> dict[str, str]:
        left: dict[str, str] = {}
        for queue in (*self.queues, "echo", *(f"probe-{name}" for name in self._fleet.names if "worker" in name)):
            stats = self._client.get_queue_stats(queue)
            if stats.ready or stats.processing or stats.failing:
                left[queue] = repr(stats)
        return left

    def _is_drained(self) -> bool:
        try:
            return not self._left()
        except PgjqError:
            return False

    def _read(self, queue: str) -> Iterable[JobStatus]:
        after: int | None = 0
        while after is not None:
            page = self._client.find_jobs(queue, after=after, limit=1000)
            yield from page
            after = page.next


def _disorder(jobs: Iterable[JobStatus]) -> Iterable[str]:
    """Compare the order in which the jobs of each key ended with their numbers."""
    ended: defaultdict[str, list[tuple[object, int]]] = defaultdict(list)
    for job in jobs:
        key, _, number = job.id.rpartition("-")
        if job.finished_at is not None:
            ended[key].append((job.finished_at, int(number)))
    for key, order in ended.items():
        numbers = [number for _, number in sorted(order)]
        if numbers != sorted(numbers):
            yield f"key {key} ended in the order {numbers[:50]}"
