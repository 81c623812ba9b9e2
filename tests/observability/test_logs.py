"""The running job on log lines, and the page that lists every event."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog

import pgjq
from pgjq.logs import JobContextFilter, add_job_context
from tests.cli.run_command import started

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "log-events.md").read_text()
ROWS = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \|", PAGE, re.MULTILINE)
EVENTS = {event: set(levels.split(", ")) for event, levels in ROWS}
METHODS = {"debug", "info", "warning", "error", "exception", "log", "write"}
# Messages that are not constants at the call, and what they can be.
COMPUTED = {
    ("background.py", "message"): {"background thread failed, starting it again: …"},
    ("fault_log.py", "message"): {
        "storage unavailable, retrying: …", "storage unavailable for … s, … tries failed, retrying: …",
        "… failed, trying again: …",
    },
    ("dispatch.py", "_WARNINGS[reason]"): {event for event in EVENTS if event.startswith("job put back: ")},
    ("job_log.py", "what"): {"job snoozed", "job released"},
    ("job_log.py", "'%s, the job will be retried'"): {
        "attempt failed, the job will be retried", "attempt expired, the job will be retried",
    },
    ("job_log.py", "'job %s'"): {"job completed"},
}  # fmt: skip


def calls() -> Iterator[tuple[str, str, set[str]]]:
    """Yield file, method and possible messages of each log call in the package."""
    for path in sorted((ROOT / "pgjq").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (method := _method(node)):
                message = node.args[1 if method == "log" else 0]
                computed = COMPUTED.get((path.name, ast.unparse(message)))
                yield path.name, method, computed or {_shown(message)}


def _method(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Name):
        return "write" if call.func.id == "write" and any(k.arg == "extra" for k in call.keywords) else None
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in METHODS - {"write"}:
        return None
    owner = ast.unparse(call.func.value).lower()
    return call.func.attr if re.search(r"log(ger)?\b|getlogger|_logger\(", owner) and "math" not in owner else None


def _shown(message: ast.expr) -> str:
    text = ast.literal_eval(message)
    return re.sub(r"%[.\d]*[sdrf]|%04o", "…", text)


def test_the_page_lists_every_event_with_its_level() -> None:
    found = list(calls())
    assert len(found) > 50
    missing = [(file, event) for file, _, events in found for event in events if event not in EVENTS]
    assert missing == []
    wrong = [
        (file, method, event)
        for file, method, events in found
        for event in events
        if method not in ("log", "write") and {"exception": "error"}.get(method, method) not in EVENTS[event]
    ]
    assert wrong == []


def test_the_page_lists_no_event_that_does_not_exist() -> None:
    assert set(EVENTS) - {event for *_, events in calls() for event in events} == set()


@pytest.fixture
def job_context(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The running job on captured lines. pytest has one handler for all tests of a process."""
    context = JobContextFilter()
    caplog.handler.addFilter(context)
    yield
    caplog.handler.removeFilter(context)


@pytest.mark.usefixtures("job_context")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_lines_inside_a_handler_have_its_job(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    shop = logging.getLogger("shop")
    events: list[Any] = []

    def say(text: str) -> None:
        shop.warning(text)
        events.append(add_job_context(None, "info", {"event": text}))

    async def both() -> None:
        say("in a coroutine")
        await asyncio.to_thread(say, "in a thread")

    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())
    if mode == "sync":

        @queue.task
        def receipt() -> None:
            say("in a function")
    else:

        @queue.task
        async def receipt() -> None:
            await both()

    with queue:
        handle = receipt.enqueue()
        handle.result(timeout=30)
    say("outside")
    fields = {"queue": "mail", "job_id": handle.id, "task": "receipt", "attempt": 1}
    lines = [record for record in caplog.records if record.name == "shop"]
    for record in lines[:-1]:
        assert {name: getattr(record, name) for name in fields} == fields
    assert (lines[-1].queue, lines[-1].job_id) == (None, None)  # type: ignore[attr-defined]
    assert [event for event in events if {**event, **fields} != event] == [{"event": "outside"}]
    assert len(events) == len(lines) == (2 if mode == "sync" else 3)


def test_structlog_takes_the_processor() -> None:
    lines: list[str] = []

    class Lines:
        def info(self, line: str) -> None:
            lines.append(line)

    log = structlog.wrap_logger(Lines(), [add_job_context, structlog.processors.JSONRenderer(sort_keys=True)])
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())
    queue.execute(lambda _job: log.info("sent"))
    with queue:
        queue.enqueue_and_wait("a", 1)
    assert [json.loads(line) for line in lines] == [{"event": "sent", "queue": "mail", "job_id": "a", "attempt": 1}]


MODULE = """
import logging, os
import pgjq

mail = pgjq.Queue("mail", storage=pgjq.PostgresStorage(os.environ["PGJQ_URL"]))

@mail.task
def receipt(order):
    logging.getLogger("shop").info("receipt written", extra={"order": order})
"""


def test_the_log_of_the_command_line_has_stable_keys(database: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODULE)
    with pgjq.Client(pgjq.PostgresStorage(database)) as client:
        client.enqueue("mail", "a", {"task": "receipt", "args": [7]})
    with started("worker", "shop", url=database, directory=tmp_path) as worker:
        line = worker.wait_for("receipt written")
        assert worker.end() == 0
    assert list(line)[:4] == ["time", "level", "logger", "message"]
    assert {key: line[key] for key in line if key != "time"} == {
        "level": "info", "logger": "shop", "message": "receipt written", "order": 7,
        "queue": "mail", "job_id": "a", "task": "receipt", "attempt": 1,
    }  # fmt: skip
