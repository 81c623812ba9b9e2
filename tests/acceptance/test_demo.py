"""`pgjq demo`, run as a process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import pgjq

PGJQ = Path(sys.executable).with_name("pgjq")
JOBS = 300
PRINTABLE = {"\n", *map(chr, range(32, 127)), "²", "─"}


def demo(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the demo as a shell would, with a place of its own for its temporary files."""
    for folder in (tmp_path, *tmp_path.parents):
        if stat.S_IMODE(folder.stat().st_mode) == 0o700:
            folder.chmod(0o711)  # As passable as /tmp: root's embedded server runs as another user.
    command = (PGJQ, "demo", "--jobs", str(JOBS), *arguments)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PGJQ_URL": "postgresql://nobody@nowhere.invalid/none"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def figures(output: str) -> dict[str, int]:
    """Read the table: the numbers by their labels."""
    _, _, table = output.partition("what the database says now")
    rows = [line.removesuffix("right").removesuffix("wrong").split() for line in map(str.strip, table.splitlines())]
    return {" ".join(words[:-1]): int(words[-1].replace(",", "")) for words in rows if len(words) > 1}


@pytest.mark.slow
def test_every_job_has_one_result_although_a_worker_is_killed(tmp_path: Path) -> None:
    process = demo(tmp_path)
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    found = figures(output)
    assert found["jobs enqueued"] == found["jobs completed, with one result each"] == JOBS + 1
    assert found["jobs failed or cancelled"] == found["jobs not finished"] == found["results wrong or missing"] == 0
    assert found["jobs taken back, and run again"] > 0
    assert found["jobs completed by worker 1"] + found["jobs completed by worker 2"] == JOBS + 1
    assert "kill -9" in output
    assert "1522756" in output
    assert "wrong " not in output.replace("results wrong or missing", "")
    assert set(output) <= PRINTABLE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    process = demo(tmp_path)
    assert process.stdout is not None
    workers = [int(word) for word in next(line for line in process.stdout if "are processes" in line).split()[-3::2]]
    assert all(map(is_alive, workers))
    os.killpg(process.pid, number)
    process.communicate()
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []
    assert not any(map(is_alive, workers))


@pytest.mark.slow
def test_a_database_that_was_named_keeps_no_job_of_the_demo(tmp_path: Path, empty_database: str) -> None:
    process = demo(tmp_path, "--url", empty_database)
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert figures(output)["jobs completed, with one result each"] == JOBS + 1
    with pgjq.Client(pgjq.PostgresStorage(empty_database)) as client:
        assert not client.find_jobs()


@pytest.mark.slow
def test_the_demo_runs_on_a_directory(tmp_path: Path) -> None:
    process = demo(tmp_path, "--url", f"file://{tmp_path}/jobs")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert figures(output)["jobs completed, with one result each"] == JOBS + 1
    assert figures(output)["jobs taken back, and run again"] > 0
    with pgjq.Client(pgjq.FileStorage(tmp_path / "jobs")) as client:
        assert not client.find_jobs()


@pytest.mark.slow
def test_the_demo_runs_in_memory_and_says_that_nobody_is_killed(tmp_path: Path) -> None:
    process = demo(tmp_path, "--url", "memory:")
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert figures(output)["jobs completed, with one result each"] == JOBS + 1
    assert "none is killed" in output


@pytest.mark.slow
def test_the_demo_runs_on_redis_and_leaves_no_job_there(tmp_path: Path, redis_url: str) -> None:
    process = demo(tmp_path, "--url", redis_url)
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    found = figures(output)
    assert found["jobs completed, with one result each"] == JOBS + 1
    assert found["jobs taken back, and run again"] > 0
    with pgjq.Client(pgjq.open_storage(redis_url)) as client:
        assert not client.find_jobs()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
