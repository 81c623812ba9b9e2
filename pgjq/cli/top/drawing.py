"""Draw the screen of `pgjq top` as lines of a given size; texts cannot move the cursor."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.console import Console, Group
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from pgjq.cli.formatting import one_line
from pgjq.storage.inspection import MANY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from pgjq.cli.top.model import Screen, View
    from pgjq.doctor import Finding
    from pgjq.job import WorkerInfo
    from pgjq.storage.inspection import FoundJob, QueueOverview

Cells: TypeAlias = "Sequence[tuple[str, str]]"

STYLES: Final = {"error": "bold red", "warning": "yellow", "ok": "green"}
STATES: Final = {"failed": "red", "failing": "yellow", "processing": "blue", "completed": "green", "cancelled": "dim"}
# Heading, width (0: takes what is left), and whether it is a number.
COLUMNS: Final[dict[View, tuple[tuple[str, int, bool], ...]]] = {
    "queues": (("queue", 0, False), ("ready", 10, True), ("oldest", 7, True), ("running", 7, True),
               ("failing", 7, True), ("failed", 7, True), ("workers", 7, True)),
    "jobs": (("id", 0, False), ("state", 10, False), ("tries", 5, True), ("changed", 8, True), ("error", 0, False)),
    "failures": (("queue", 0, False), ("id", 0, False), ("state", 7, False), ("changed", 8, True), ("error", 0, False)),
    "workers": (("worker", 0, False), ("state", 6, False), ("running", 7, True), ("seen", 8, True),
                ("queues", 0, False)),
    "doctor": (("level", 7, False), ("check", 11, False), ("finding, and what to do", 0, False)),
}  # fmt: skip
HELP: Final[dict[View, str]] = {
    "queues": "enter jobs  p pause/resume  f failures  w workers  d doctor  q quit",
    "jobs": "r retry  c cancel  esc queues  f failures  w workers  d doctor  q quit",
    "failures": "r retry  c cancel  esc queues  w workers  d doctor  q quit",
    "workers": "esc queues  f failures  d doctor  q quit",
    "doctor": "esc queues  f failures  w workers  q quit",
}


def draw(screen: Screen, address: str, width: int, height: int) -> RenderableType:
    """Return the whole screen, `height` lines of `width` columns."""
    top = [_header(screen, address, width), _totals(screen), *_findings(screen, width, height)]
    room = height - len(top) - 2  # The table's heading and the footer.
    layout = Layout()
    layout.split_column(
        Layout(Group(*top), size=len(top)),
        Layout(_table(screen, room, width) if screen.rows else Text(_nothing(screen), "dim")),
        Layout(_footer(screen, width), size=1),
    )
    return layout


def _header(screen: Screen, address: str, width: int) -> Text:
    where = f" {screen.view}{f' of {one_line(screen.queue)}' if screen.queue else ''}"
    text = Text(f"pgjq top{where}", "bold")
    clock = f"{datetime.now(UTC):%H:%M:%S} UTC"
    text.append(f"  {one_line(address)}", "dim")
    text.truncate(max(0, width - len(clock) - 1), overflow="ellipsis")
    text.append(" " * max(1, width - text.cell_len - len(clock)))
    return text.append(clock, "dim")


def _totals(screen: Screen) -> Text:
    totals = screen.facts.totals
    alive = sum(worker.alive for worker in screen.facts.workers)
    pairs = [("queues", totals.queues), ("ready", totals.ready), ("running", totals.processing),
             ("failing", totals.failing), ("failed", totals.failed)]  # fmt: skip
    if screen.view != "doctor":
        pairs.append(("workers", alive))
    text = Text(no_wrap=True, overflow="ellipsis")
    for name, value in pairs:
        is_bad = name in ("failing", "failed") and bool(value)
        text.append(f"{_count(value)} ", "bold yellow" if is_bad else "bold").append(f"{name}   ", "dim")
    return text


def _findings(screen: Screen, width: int, height: int) -> Iterator[Text]:
    """Yield the findings that fit.

    They are whole if there is room, else two lines each, and get at least a quarter of the screen.
    """
    if screen.facts.problem is not None:
        yield _cut(Text(f"the storage does not answer: {one_line(screen.facts.problem)}", "bold red"), width)
    if screen.view in ("jobs", "failures"):
        yield from _detail(screen.chosen_job, width)
    if screen.view not in ("queues", "workers"):
        return
    found = screen.facts.findings
    # The header, the heading of the table, the footer, and the table's rows, up to half of the screen.
    lines = max(height // 4, height - 5 - min(len(screen.rows), height // 2))
    wrapped = [line for finding in found for line in _wrapped(finding, width)]
    if len(wrapped) <= lines:
        yield from wrapped
        return
    room = max(1, lines // 2)
    for finding in found[:room]:
        yield _cut(Text(f"! {one_line(finding.message)}", STYLES[finding.level]), width)
        yield _cut(Text(f"  -> {one_line(finding.advice)}", "dim"), width)
    if len(found) > room:
        yield Text(f"  {len(found) - room} more: press d", "yellow")


def _wrapped(finding: Finding, width: int) -> Iterator[Text]:
    message = Text(f"! {one_line(finding.message)}", STYLES[finding.level])
    advice = Text(f"  -> {one_line(finding.advice)}", "dim")
    for text, indent in ((message, "  "), (advice, "     ")):
        for number, line in enumerate(text.wrap(Console(width=width), width - len(indent))):
            yield Text(indent, line.style).append_text(line) if number else line


def _detail(job: FoundJob | None, width: int) -> Iterator[Text]:
    """Yield what the selected job's row has no room for."""
    if job is None:
        return
    status = job.status
    facts = (
        f"task {status.task}" if status.task else "",
        f"key {status.singleton_key}" if status.singleton_key else "",
        f"on {status.worker}" if status.worker else "",
        f"{status.attempts} of {status.max_attempts} attempts",
        f"stalled {status.stalled} times" if status.stalled else "",
    )
    advice = f"  -> pgjq status {one_line(status.queue)} {one_line(status.id)} shows its runs and tracebacks"
    yield _cut(Text(one_line(f"{status.queue} {status.id}: {', '.join(filter(None, facts))}")), width)
    yield _cut(Text(one_line(_error(job)[0] or "no error"), STATES.get(status.state, "")), width)
    yield _cut(Text(advice, "dim"), width)


def _table(screen: Screen, room: int, width: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), width=width, pad_edge=False, header_style="dim")
    wraps = screen.view == "doctor"
    for name, size, is_number in COLUMNS[screen.view]:
        table.add_column(
            name, width=size or None, ratio=None if size else 1, justify="right" if is_number else "left",
            no_wrap=not (wraps and not size), overflow="fold" if wraps else "ellipsis",
        )  # fmt: skip
    rows = screen.rows
    # Findings take several lines each: their table begins with the selected one.
    first = screen.selected if wraps else max(0, min(screen.selected - room // 2, len(rows) - room))
    for number in range(first, min(len(rows), first + max(room, 1))):
        style = "reverse" if number == screen.selected and not wraps else ""
        table.add_row(*(Text(one_line(text), css) for text, css in _cells(screen, number)), style=style)
    return table


def _nothing(screen: Screen) -> str:
    if not screen.facts.is_read:
        return "reading …"
    return {
        "queues": "no queue yet: pgjq enqueue mail '{}'",
        "jobs": "no job in this queue",
        "failures": "no job failed lately",
        "workers": "no worker: pgjq worker MODULE",
        "doctor": "",
    }[screen.view]


def _cells(screen: Screen, number: int) -> Cells:
    facts = screen.facts
    match screen.view:
        case "queues":
            return _queue(facts.queues[number], facts.workers)
        case "jobs":
            return _job(facts.jobs[number])
        case "failures":
            return _failure(facts.jobs[number])
        case "workers":
            return _worker(facts.workers[number])
        case "doctor":
            return _finding(facts.findings[number])


def _queue(queue: QueueOverview, workers: Sequence[WorkerInfo]) -> Cells:
    served = sum(worker.alive and queue.name in worker.queues for worker in workers)
    failing, failed = (queue.counted.failing, queue.counted.failed) if queue.counted else (None, None)
    return (
        (f"{queue.name}{' (paused)' if queue.paused else ''}", "yellow" if queue.paused else ""),
        (f"~{_count(queue.about_ready)}" if queue.about_ready > MANY else queue.ready_short, ""),
        (_age(queue.oldest), ""),
        (_count(queue.processing), ""),
        (_count(failing), "yellow" if failing else ""),
        (_count(failed), "red" if failed else ""),
        (_count(served) if served else "none", "" if served else "red" if queue.ready else "dim"),
    )


def _job(job: FoundJob) -> Cells:
    status = job.status
    tries = f"{status.attempts}/{status.max_attempts}"
    return (status.id, ""), (status.state, STATES.get(status.state, "")), (tries, ""), (_changed(job), ""), _error(job)


def _failure(job: FoundJob) -> Cells:
    status = job.status
    return (status.queue, ""), (status.id, ""), (status.state, STATES[status.state]), (_changed(job), ""), _error(job)


def _worker(worker: WorkerInfo) -> Cells:
    state = ("alive", "green") if worker.alive else ("silent", "red")
    seen = _since(worker.last_seen)
    return (worker.id, ""), state, (_count(worker.running), ""), (seen, ""), (", ".join(worker.queues), "")


def _finding(finding: Finding) -> Cells:
    text = f"{finding.message}{f' -> {finding.advice}' if finding.advice else ''}"
    return (finding.level, STYLES[finding.level]), (finding.check, ""), (text, "")


def _error(job: FoundJob) -> tuple[str, str]:
    error = job.status.error
    if error is None:
        return "", ""
    return f"{error.type}: {error.message}{f' ({job.place})' if job.place else ''}", ""


def _changed(job: FoundJob) -> str:
    status = job.status
    return _since(status.finished_at or status.started_at or status.created_at)


def _footer(screen: Screen, width: int) -> Text:
    if screen.asked is not None:
        return _cut(Text(f"{one_line(str(screen.asked))}? y yes, any other key no", "bold reverse"), width)
    if screen.message:
        return _cut(Text(one_line(screen.message), "bold"), width)
    return _cut(Text(HELP[screen.view], "dim"), width)


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _since(moment: datetime | None) -> str:
    return _age(None if moment is None else (datetime.now(UTC) - moment).total_seconds())


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    size, unit = next(((s, u) for s, u in ((86400, "d"), (3600, "h"), (60, "min")) if seconds >= 2 * s), (1, "s"))
    return f"{max(0.0, seconds) / size:.0f} {unit}"
