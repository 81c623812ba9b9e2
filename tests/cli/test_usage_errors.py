"""What goes wrong is one line that says what to do, and the right exit code."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import pgjq
from tests.cli.run_command import PGJQ, answer, complaint, run

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "postgresql:///x?host=/nowhere"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["enqueue", "mail", "hello"], """this is not JSON: Expecting value at column 1; text is quoted twice"""),
        (["enqueue", "mail", '{"a": }'], "this is not JSON: Expecting value at column 7 (see: pgjq enqueue --help)"),
        (["enqueue", "mail", "NaN"], "this is not JSON, which has no NaN"),
        (["enqueue", "mail", "[" * 100_000], "this JSON is nested too deeply"),
        (["enqueue", "ma\x1bil", "1"], "a queue's name must not hold control characters"),
        (["enqueue", "", "1"], "a queue's name must have 1 to 128 characters"),
        (["enqueue", "mail", "1", "--id", ""], "a job's id must not be empty"),
        (["enqueue", "mail", "1", "--delay", "soon"], "'soon' is not a duration: write seconds, or 90s, 15m, 2h, 7d"),
        (["enqueue", "mail", "1", "--run-at", "2026-01-31T09:30"], "has no time zone"),
        (["enqueue", "mail", "1", "--run-at", "noon"], "'noon' is not a time: write it as 2026-01-31T09:30:00+01:00"),
        (["enqueue", "mail", "1", "--priority", "99999"], "priority must be between -32767 and 32767"),
        (["enqueue", "mail", "1", "--id", "a", "--content-id"], "exclude each other"),
        (["enqueue", "mail", "1", "--lines"], "write - as PAYLOAD"),
        (["enqueue", "mail", "-", "--lines", "--id", "a"], "are for one job"),
        (["status", "mail"], "Missing argument 'ID' (see: pgjq status --help)"),
        (["jobs", "find", "--state", "lost"], "'lost' is not one of"),
        (["worker", "no_such_module:mail"], "there is no module 'no_such_module'"),
        (["worker", "json.tool.x:mail"], "there is no module 'json.tool.x'"),
        (["worker", "tasks.py:mail"], "write tasks"),
        (["worker", "json:mail"], "there is no 'mail' in module 'json'"),
        (["worker", "json:dumps"], "json:dumps is a function; it must be a Queue"),
        (["worker", "json"], "there is no queue with tasks or a handler in module 'json'"),
        (["worker", ":mail"], "does not say MODULE:QUEUE"),
        (["reaper", "--lock-ttl", "9s"], "--lock-ttl: only with --leader-election"),
        (["nonsense"], "No such command 'nonsense' (see: pgjq --help)"),
        (["status", "mail", "a", "--url", "http://localhost"], "unknown storage 'http': the URL must start with"),
        (["status", "mail", "a", "--url", "http://["], "this is not a URL"),
        (["status", "mail", "a", "--url", "embedded:database"], "as embedded:///var/lib/jobs"),
        (["status", "mail", "a", "--url", "wrong=option"], 'invalid connection option "wrong"'),
        (["status", "mail", "a", "--url", "file:///tmp/x", "--schema", "jobs"], "--schema is for PostgreSQL"),
    ],
)
def test_what_cannot_be_understood_ends_with_2(database: str, arguments: list[str], said: str) -> None:
    line = complaint(*arguments, url=database, code=2)
    assert said in line
    assert "\x1b" not in line


def test_a_database_that_cannot_be_reached_ends_with_1_and_names_where_to_look() -> None:
    assert complaint("queues", "list", url=NOWHERE).endswith("(look at --url or PGJQ_URL)")
    assert complaint("reaper", url=NOWHERE).endswith("(look at --url or PGJQ_URL)")


def test_a_database_without_the_schema_says_what_to_run(empty_database: str) -> None:
    assert "pgjq migrate" in complaint("enqueue", "mail", "1", url=empty_database)
    assert "pgjq migrate" in complaint("reaper", url=empty_database)


def test_memory_is_taken_and_said_to_be_gone_afterwards() -> None:
    result = run("enqueue", "mail", "1", "--json", url="memory:")
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "memory: is empty when a command starts, and what it held is gone when it ends",
        "created queue 'mail': it did not exist",
    ]
    result = run("reaper", "--leader-election", url="memory:")
    assert (result.exit_code, result.stderr.splitlines()[-1][:28]) == (1, "Error: MemoryStorage has no ")


def test_a_module_that_breaks_says_where_and_debug_shows_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_shop.py").write_text("import pgjq\nqueue = pgjq.Qeue('mail')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = complaint("worker", "broken_shop:queue", url=None)
    assert said.startswith("importing broken_shop failed: AttributeError: ")
    assert f"({tmp_path / 'broken_shop.py'}, line 2)" in said
    assert isinstance(run("--debug", "worker", "broken_shop:queue", url=None).exception, AttributeError)


SHOP = """
import pgjq
one, two = pgjq.MemoryStorage(), pgjq.MemoryStorage()
mail = pgjq.Queue("mail", storage=one)
orders = pgjq.Queue("orders", storage=two)
quick = pgjq.Queue("quick", storage=one, visibility_timeout=1)
idle = pgjq.Queue("idle", storage=one)
for queue in (mail, orders, quick):
    queue.execute(print)
"""


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (["mail", "orders"], "mail and orders have different storages"),
        (["mail", "quick"], "mail and quick have different lease policies"),
        (["idle"], "every queue of a worker needs a task or a handler"),
        (["nothing"], "its queues are mail, orders, quick, idle"),
        (["one"], "is a MemoryStorage; it must be a Queue"),
    ],
)
def test_queues_that_cannot_work_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, targets: list[str], said: str
) -> None:
    (tmp_path / "misfit_shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(tmp_path)
    assert said in complaint("worker", *(f"misfit_shop:{target}" for target in targets), url=None, code=2)


def test_what_a_job_holds_cannot_move_the_cursor(database: str) -> None:
    nasty = "a\x1b[2J\u202eb\n[red]c"
    with pgjq.Client(pgjq.PostgresStorage(database)) as client:
        client.enqueue("mail", nasty, 1)
    for arguments in (["status", "mail", nasty], ["jobs", "find"], ["cancel", "mail", nasty], ["retry", "mail", nasty]):
        shown = run(*arguments, url=database).output
        assert "a\\x1b[2J\\u202eb\\n[red]c" in shown
        assert not set(shown) & {"\x1b", "\u202e"}
    assert answer("status", "mail", nasty, url=database)["id"] == nasty


def test_an_unforeseen_error_is_one_line_and_debug_shows_it(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise LookupError("what?")

    monkeypatch.setattr(pgjq.Client, "get_status", fail)
    assert complaint("status", "mail", "a", url=database).startswith("LookupError: what?; this is a defect of pgjq")
    assert isinstance(run("--debug", "status", "mail", "a", url=database).exception, LookupError)


def test_help_alone_is_shown_on_request_and_for_nothing_at_all() -> None:
    assert run("--help", url=None).exit_code == 0
    assert run(url=None).output == run("--help", url=None).output


def test_ctrl_c_ends_with_130_and_a_line_in_a_terminal(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    url = f"file://{tmp_path}"
    assert run("enqueue", "mail", "1", url=url).exit_code == 0
    with subprocess.Popen(
        [PGJQ, "jobs", "delete", "--queue", "mail", "--url", url],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(terminal)
        shown = read_until(controller, b"[y/N]")
        assert interrupt(process) == 130
    shown += read_until(controller, b"interrupted")
    os.close(controller)
    assert re.search(rb"Delete 1 job\?", shown)
    assert len(answer("jobs", "find", url=url)) == 1


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C, and again if it met Python on its way into readline, which notices it with the next key only."""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.wait(5)
    process.kill()
    raise AssertionError("it does not end")


def read_until(file: int, wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        assert select.select([file], [], [], 30)[0], shown
        shown += os.read(file, 1024)
    return shown
