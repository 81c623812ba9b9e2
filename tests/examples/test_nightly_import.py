"""A nightly import whose worker is killed in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg

from tests.examples.conftest import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    import pgjq
    from tests.examples.conftest import Processes

LINES = 4500
WAITING = """
select pid from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like 'insert into price%'
"""
LATER = "update pgjq.job set locked_until = pgjq.now() - interval '1 second'"


def test_a_killed_import_goes_on_where_it_was_and_leaves_every_line_once(
    processes: Processes, client: pgjq.Client, tmp_path: Path
) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("".join(f"article-{number},{number}\n" for number in range(LINES)))
    said = [schedule(processes, file).splitlines() for _ in range(2)]
    (job,) = client.find_jobs("imports")
    assert said[0][0] == job.id
    assert said[0][1:] == said[1]  # The second call changes nothing, and starts no second import.
    with psycopg.connect(processes.url) as writer, psycopg.connect(processes.url, autocommit=True) as looking:
        writer.execute("insert into price values ('article-2500', 1)")  # Not committed: the third chunk waits here.
        first = processes.start("pgjq", "worker", "nightly_import:imports")
        while looking.execute(WAITING).fetchone() is None:
            assert first.poll() is None
        first.kill()
        writer.rollback()
        looking.execute(LATER)  # As if its lease had lapsed.
    second = processes.start("pgjq", "worker", "nightly_import:imports")
    assert client.wait("imports", job.id, timeout=60) == {"lines": LINES}
    second.terminate()
    assert "attempt 2 begins after line 2000" in second.communicate(timeout=60)[0]
    with psycopg.connect(processes.url) as looking:
        assert looking.execute("select count(*), sum(cents) from price").fetchone() == (LINES, sum(range(LINES)))
        assert looking.execute("select lines from import_log").fetchall() == [(LINES,)]


def schedule(processes: Processes, file: Path) -> str:
    """Run the example's main."""
    return subprocess.run(
        [sys.executable, "nightly_import.py", file],
        cwd=EXAMPLES,
        env={**os.environ, "PGJQ_URL": processes.url},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
