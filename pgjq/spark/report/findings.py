"""Findings: what to do today, each with a command to paste, the most urgent first."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from pgjq.spark.report.formatting import MEASURES, count, duration, measured, share, stretch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgjq.spark.report.report_data import Figures, Row
    from pgjq.spark.report.slo import Objective

RECENT: Final = timedelta(days=7)
STALLED_SHARE: Final = 0.01
LEAST_STALLS: Final = 10
LONG_WAIT: Final = 600.0
LEAST_WAITING: Final = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to do: the finding, its evidence, the command, and the jobs in the web page."""

    urgency: float
    queue: str
    title: str
    why: str
    command: str
    page: str

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {"queue": self.queue, "title": self.title, "why": self.why, "command": self.command, "page": self.page}


def find(figures: Figures, objectives: Sequence[Objective]) -> list[Finding]:
    """Return everything that wants doing, the most urgent first."""
    found = [*_missed(figures, objectives), *_settings(figures), *_stalls(figures), *_waiting(figures), *_odd(figures)]
    return sorted(found, key=lambda one: (-one.urgency, one.queue))


def jobs_page(**fields: str) -> str:
    """Return the address of jobs within the web page."""
    return f"jobs?{urlencode(fields)}"


def anomaly_page(row: Row) -> str:
    """Return the address of the jobs that ended during an anomaly."""
    fields = {"queue": row["queue"], "ended_after": _iso(row["begins"]), "ended_before": _iso(row["ends"])}
    if row["task"]:
        fields["task"] = row["task"]
    if row["measure"] == "failure_rate":
        fields["state"] = "failed"
    return jobs_page(**fields)


def _missed(figures: Figures, objectives: Sequence[Objective]) -> Iterator[Finding]:
    for one in objectives:
        burn = one.burns[7]
        if not one.is_missed or burn is None:
            continue
        failed = burn * (1 - one.target / 100)
        yield Finding(
            1000 + min(burn, 100),
            one.queue,
            f"{one.queue}: {share(failed)} of its jobs failed in the last seven days",
            f"The target is {one.target:g} % completed: it fails {burn:.3g} times as often as it may.",
            f"pgjq jobs find --queue {shlex.quote(one.queue)} --state failed",
            jobs_page(queue=one.queue, state="failed", ended_after=f"{figures.dates[-7:][0]}T00:00:00+00:00"),
        )


def _settings(figures: Figures) -> Iterator[Finding]:
    for row in figures.advice:
        for said in row["disagrees"]:
            name = "heartbeat" if said.startswith("a lease") else "expire-in"
            wanted = row["visibility_timeout" if name == "heartbeat" else "expire_in_seconds"]
            yield Finding(
                100 if name == "heartbeat" else 500,
                row["queue"],
                f"{row['queue']}: change {name.replace('-', '_')}_seconds",
                f"Now {said}.",
                f"pgjq queues update {shlex.quote(row['queue'])} --{name}-seconds {max(1, round(wanted))}",
                f"queue?{urlencode({'name': row['queue']})}",
            )


def _stalls(figures: Figures) -> Iterator[Finding]:
    for worker, queue, stalls, ended in figures.stalls:
        if stalls >= LEAST_STALLS and stalls / (stalls + ended) >= STALLED_SHARE:
            yield Finding(
                300 + 100 * stalls / (stalls + ended),
                queue,
                f"{worker} lost {count(stalls)} of {count(stalls + ended)} runs of {queue}",
                "They were taken back because it went silent or they took too long. Look at its memory and logs.",
                "pgjq workers",
                jobs_page(queue=queue, worker=worker),
            )


def _waiting(figures: Figures) -> Iterator[Finding]:
    for row in figures.advice:
        if (row["backlog"] or 0) >= LEAST_WAITING and (row["backlog_age"] or 0) >= LONG_WAIT:
            yield Finding(
                800,
                row["queue"],
                f"{row['queue']}: {count(row['backlog'])} jobs wait, the oldest for {duration(row['backlog_age'])}",
                f"A busy hour needs {row['concurrency']} runs at once, at 70 % load.",
                f"pgjq scale {shlex.quote(row['queue'])} --target 10m",
                jobs_page(queue=row["queue"], state="queued"),
            )


def _odd(figures: Figures) -> Iterator[Finding]:
    for row in figures.anomalies:
        if row["begins"].astimezone(UTC).date() <= figures.dates[-1] - RECENT:
            continue
        when = stretch(row["begins"].astimezone(UTC), row["ends"].astimezone(UTC))
        yield Finding(
            200 + min(abs(row["score"]), 99),
            row["queue"],
            f"{row['queue']}: {MEASURES[row['measure']]} {row['side']} its band, {when}",
            f"It was {measured(row['measure'], row['value'], row.get('grain', 'hour'))} at worst, and is usually "
            f"{measured(row['measure'], row['usual'], row.get('grain', 'hour'))}.",
            f"pgjq jobs find --queue {shlex.quote(row['queue'])} --created-after "
            f"{_iso(row['begins'] - timedelta(days=1))} --created-before {_iso(row['ends'])}",
            anomaly_page(row),
        )


def _iso(moment: Any) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
