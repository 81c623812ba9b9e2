"""The pytest plugin in a project of its own, and the helpers in a unittest."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from typing import TYPE_CHECKING

import pytest

import pgjq
from pgjq.testing import ManualClock, assert_enqueued, capture, drain

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
    import pytest
    import pgjq
    from pgjq.testing import assert_enqueued, capture, drain

    @pytest.fixture
    def mail(pgjq_storage):
        queue = pgjq.Queue("mail", storage=pgjq_storage)
        queue.task(receipt)
        return queue

    def receipt(order: int) -> int:
        return order

    def test_one(mail, pgjq_clock):
        task = mail.tasks["receipt"]
        with capture(mail) as jobs:
            task.using(delay=3 * 3600).enqueue(7)
        assert_enqueued(task, 7, since=jobs)
        assert drain(mail) == 0
        pgjq_clock.advance(hours=3)
        assert drain(mail) == 1

    def test_two(mail, pgjq_storage):
        assert type(pgjq_storage).__name__ == "{storage}"
        assert mail.client.get_queue_stats("mail").total == 0
        with mail:
            assert mail.tasks["receipt"].using(delay=0.01).enqueue(8).result() == 8
"""
POSTGRESQL = """
    import pytest
    from pytest_postgresql import factories
    from pgjq.testing import load_schema
    from tests.databases import Address

    @pytest.fixture(scope="session")
    def address():
        return Address.of({server!r})

    server = factories.postgresql_noproc(dbname="pgjq_plugin", depends_on="address", load=[load_schema])
    mine = factories.postgresql("server")
"""


def play(directory: Path, *options: str, storage: str, conftest: str = "", ini: str = "") -> None:
    """Run the tests of a project that has pgjq installed."""
    (directory / "conftest.py").write_text(_dedent(conftest))
    (directory / "pytest.ini").write_text(f"[pytest]\naddopts = -p no:randomly -p no:valkey\n{ini}")
    (directory / "test_mail.py").write_text(_dedent(TESTS.replace("{storage}", storage)))
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(directory), str(directory), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def _dedent(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines())


def test_fixtures_in_memory(tmp_path: Path) -> None:
    play(tmp_path, storage="MemoryStorage")


def test_fixtures_on_a_server(tmp_path: Path, server: str) -> None:
    play(tmp_path, "--pgjq-storage", server, storage="PostgresStorage")


def test_fixtures_of_pytest_postgresql(tmp_path: Path, server: str) -> None:
    play(
        tmp_path,
        "--pgjq-storage=postgres",
        storage="PostgresStorage",
        conftest=POSTGRESQL.format(server=server),
        ini="pgjq_postgresql_fixture = mine\n",
    )


@pytest.mark.slow
def test_fixtures_on_the_embedded_server(tmp_path: Path) -> None:
    play(tmp_path, "--pgjq-storage=postgres", storage="PostgresStorage")


def test_the_plugin_loads_nothing_of_pgjq_by_itself(tmp_path: Path) -> None:
    (tmp_path / "test_none.py").write_text(
        "import sys\ndef test_none():\n    assert not {'asyncio', 'psycopg', 'pgjq.queue'} & sys.modules.keys()\n"
    )
    only = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "pgjq.testing.plugin", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *only, str(tmp_path)]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


class TestWithUnittest(unittest.TestCase):
    """The helpers need no fixture."""

    def setUp(self) -> None:
        self.clock = ManualClock()
        self.queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage(clock=self.clock))
        self.queue.execute(lambda job: job.payload)

    def test_a_job(self) -> None:
        with capture(self.queue) as jobs:
            self.queue.enqueue("a", 1, delay=60)
        assert_enqueued(self.queue, 1, since=jobs)
        self.clock.advance(minutes=1)
        self.assertEqual(drain(self.queue), 1)  # noqa: PT009  (what unittest is used with)
