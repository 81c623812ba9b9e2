"""A deployment without an outage: the next release migrates under load, old and new processes work side by side.

The next release is a copy of this one with `next_release/` laid over it: its schema has another version, its workers
claim with another function. Old code is this one. Each runs in processes of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import pgjq
from pgjq.storage.postgres import schema_version

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
MIGRATE = "import sys; from pgjq.cli import main; main(sys.argv[1:])"
LOCKED = """
    select from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock' and query like '%add column attention%'
"""


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree of the next release."""
    tree = tmp_path_factory.mktemp("next")
    for folder in ("pgjq", "migrations", "sql"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HERE / "next_release", tree, dirs_exist_ok=True)
    edit(tree / "pgjq/storage/postgres/schema_version.py", "SCHEMA_VERSION: Final = 1", "SCHEMA_VERSION: Final = 2")
    edit(tree / "sql/queries/claim.sql", "    pgjq.claim(\n", "    pgjq.claim_with_attention(\n")
    return tree


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def spawn(tree: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen((sys.executable, *arguments), cwd=tree, env=environment, text=True, **pipes)


class Fleet:
    """Processes of both versions on one database."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.enqueued: list[str] = []
        self._watch = psycopg.connect(conninfo, autocommit=True)

    def start(self, tree: Path, role: str, name: str) -> None:
        self.processes[name] = spawn(tree, str(HERE / "process.py"), role, name, self.conninfo)

    def stop(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, ""), name
        for number in range(1, int(output or 0) + 1):
            self.enqueued += [f"{name}-{number}", *(f"{name}-{number}-{n}" for n in range(3))]

    def ran(self, version: int) -> int:
        row = self._watch.execute("select count(*) from effect where version = %s", [version]).fetchone()
        assert row is not None
        return row[0]

    def wait_for_progress(self, *versions: int, jobs: int = 60) -> None:
        """Wait until each version has run some more jobs; pytest's time-out ends a wait for nothing."""
        before = {version: self.ran(version) for version in versions}
        while any(self.ran(version) < before[version] + jobs for version in versions):
            self.check_running()

    def wait_for(self, query: str) -> None:
        while self._watch.execute(query.encode()).rowcount == 0:
            self.check_running()

    def check_running(self) -> None:
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {process.communicate()}"

    def close(self) -> None:
        self._watch.close()
        for process in self.processes.values():
            process.kill()
            process.communicate()


@contextmanager
def fleet_on(conninfo: str) -> Iterator[Fleet]:
    with psycopg.connect(conninfo) as connection:
        connection.execute("create table effect (id text primary key, version integer not null)")
    fleet = Fleet(conninfo)
    try:
        yield fleet
    finally:
        fleet.close()


def finish(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return output


@pytest.mark.slow
def test_the_next_release_is_deployed_and_taken_back_under_load(own_database: str, next_release: Path) -> None:
    with pgjq.Client(pgjq.PostgresStorage(own_database)) as client:
        client.create_queue("apart", partition=True)
    url = ("--url", own_database)
    with fleet_on(own_database) as fleet:
        fleet.start(ROOT, "producer", "old-producer")
        fleet.start(ROOT, "worker", "old-1")
        fleet.start(ROOT, "worker", "old-2")
        fleet.wait_for_progress(1)
        with psycopg.connect(own_database) as reader:
            reader.execute("lock table pgjq.job in access share mode")
            migration = fleet.processes["migration"] = spawn(next_release, "-c", MIGRATE, "migrate", *url)
            fleet.wait_for(LOCKED)
            fleet.wait_for_progress(1)  # The migration waits for the reader, and no worker waits for the migration.
            assert migration.poll() is None
        assert "pgjq_0002" in finish(fleet.processes.pop("migration"))
        fleet.wait_for_progress(1)
        fleet.start(next_release, "producer", "new-producer")
        fleet.start(next_release, "worker", "new-1")
        fleet.wait_for_progress(1, 2)
        fleet.stop("old-1")
        fleet.start(ROOT, "worker", "old-3")  # An old process that starts again meanwhile works, too.
        pgjq.migrate(own_database)
        fleet.wait_for_progress(1, 2)
        assert '"indexes", "level": "ok"' in finish(spawn(next_release, "-c", MIGRATE, "doctor", "--json", *url))
        fleet.stop("new-producer")
        fleet.stop("new-1")
        down = ("migrate", "down", "--revision", "pgjq_0001", "--yes")
        assert "pgjq_0001" in finish(spawn(next_release, "-c", MIGRATE, *down, *url))
        fleet.wait_for_progress(1)
        fleet.stop("old-producer")
        with psycopg.connect(own_database) as connection:
            while connection.execute("select from pgjq.job").rowcount:
                connection.rollback()
            ran = [row[0] for row in connection.execute("select id from effect").fetchall()]
        assert sorted(ran) == sorted(fleet.enqueued)
        fleet.stop("old-2")
        fleet.stop("old-3")


def test_new_code_on_the_old_schema_says_what_to_run(database: str, next_release: Path) -> None:
    process = spawn(next_release, str(HERE / "process.py"), "producer", "early", database)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "SchemaError: the database's schema has version 1, this code needs 2: run" in errors


UNFIT = [(0, "version 0, this code needs 1: run"), (3, "this code knows 1 and works on 2: upgrade pgjq")]


def pretend(conninfo: str, version: int) -> None:
    define = "create or replace function pgjq.schema_version() returns integer language sql return "
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute((define + str(version)).encode())


@pytest.mark.parametrize(("version", "message"), UNFIT)
def test_a_producer_on_a_schema_that_does_not_fit_is_told_why(own_database: str, version: int, message: str) -> None:
    pretend(own_database, version)
    process = spawn(ROOT, str(HERE / "process.py"), "producer", "unfit", own_database)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "SchemaError" in errors
    assert message in errors


@pytest.mark.parametrize(("version", "message"), UNFIT)
def test_a_worker_on_a_schema_that_does_not_fit_says_why_and_works_when_it_fits(
    own_database: str, version: int, message: str
) -> None:
    pretend(own_database, version)
    with fleet_on(own_database) as fleet:
        fleet.start(ROOT, "worker", "unfit")
        errors = fleet.processes["unfit"].stderr
        assert errors is not None
        assert message in errors.readline()
        pretend(own_database, 1)
        with pgjq.Client(pgjq.PostgresStorage(own_database)) as client:
            client.enqueue("upgraded", "one", 1)
        fleet.wait_for("select from effect where id = 'one'")


def test_this_code_supports_its_own_schema_and_the_next() -> None:
    assert [version for version in range(9) if schema_version.is_supported(version)] == [1, 2]
