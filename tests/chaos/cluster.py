"""A PostgreSQL primary and its synchronous standby, from the binaries of the embedded server.

A commit is acknowledged when the standby has it. So a failover loses nothing that was acknowledged, if the standby has
caught up since it was last away: `wait_for_standby` before each fault sees to it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import psycopg
from psycopg.conninfo import make_conninfo

from pgjq.embedded import EmbeddedServer
from pgjq.embedded_cluster import run_in

if TYPE_CHECKING:
    from collections.abc import Generator

# Processes are killed and the machine is not, hence no fsync. A standby that was away asks again after 0.1 s, not 5 s.
SETTINGS = {
    "fsync": "off",
    "listen_addresses": "",
    "log_min_messages": "fatal",
    "max_connections": "250",
    "max_wal_senders": "5",
    "port": "5432",
    "synchronous_commit": "on",
    "unix_socket_directories": ".",
    "wal_keep_size": "512MB",
    "wal_retrieve_retry_interval": "100ms",
}
CATCH_UP_SECONDS = 60
# Whatever a fault sets for the role does not hold for the harness itself.
UNLIMITED = (
    "-c statement_timeout=0 -c lock_timeout=0 -c transaction_timeout=0 -c idle_session_timeout=0"
    " -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off"
    " -c default_transaction_isolation=read\\ committed"
)


class Node:
    """One server in a data directory, run by the user who owns it."""

    def __init__(self, data: Path, binaries: Path) -> None:
        self.data = data
        self._binaries = binaries
        self.conninfo = f"host={data} port=5432 user=postgres dbname=postgres"
        self.admin_conninfo = make_conninfo(self.conninfo, options=UNLIMITED, connect_timeout=5)

    def run(self, program: str, *arguments: str) -> str:
        """Run one of PostgreSQL's programs in the data directory."""
        done = run_in(self.data, self._binaries / program, *arguments)
        if done.returncode:
            log = self.data / "server.log"
            end = log.read_text(errors="replace")[-1000:] if log.exists() else ""
            raise RuntimeError(f"{program} {arguments} failed: {done.stderr or done.stdout}\n{end}")
        return done.stdout

    def start(self) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        self.run("pg_ctl", "-D", ".", "-w", "-t", "60", "-l", "server.log", "-o", options, "start")

    def stop(self, mode: Literal["fast", "immediate"] = "immediate") -> None:
        self.run("pg_ctl", "-D", ".", "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """Kill every process of the server, frozen or not."""
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        until_gone(self.processes())
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def processes(self) -> list[int]:
        """Return the postmaster's process id and those of its backends."""
        try:
            postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
            with open(f"/proc/{postmaster}/task/{postmaster}/children") as children:  # noqa: PTH123
                return [postmaster, *map(int, children.read().split())]
        except (FileNotFoundError, IndexError):
            return []

    @contextlib.contextmanager
    def frozen(self) -> Generator[None]:
        """Stop every process of the server, without ending one."""
        self.freeze()
        yield
        self.resume()

    def freeze(self) -> None:
        stopped: set[int] = set()
        while fresh := set(self.processes()) - stopped:  # The postmaster is stopped first, and then forks no more.
            for process in sorted(fresh):
                _signal(process, signal.SIGSTOP)
            stopped |= fresh

    def resume(self) -> None:
        for process in reversed(self.processes()):
            _signal(process, signal.SIGCONT)

    def limit_files(self, size: str) -> None:
        """Limit the size of files that today's backends can write; those that start later have no limit.

        It takes the program `prlimit` (util-linux), run as the server's user: root in a container may not do this.
        """
        commands = (f"prlimit --pid {process} --fsize={size}:" for process in self.processes()[1:])
        run_in(self.data, Path("/bin/sh"), "-c", "; ".join(commands))

    def execute(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        """Run a statement as the superuser, on a one-shot connection past every proxy."""
        with psycopg.connect(self.admin_conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []


class Cluster:
    """A primary, and a standby that has every commit before it is acknowledged."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with EmbeddedServer.start(directory / "first") as server:  # Makes the data directory.
            self._binaries = server.binaries
        self._copies = 0
        self.primary = Node(directory / "first" / "data", self._binaries)
        self.standby = self.primary
        self.primary.start()
        try:
            self.standby = self._new_standby()
        except BaseException:
            self.primary.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.standby.kill()
        self.primary.kill()

    def restart(self) -> None:
        """Restart the primary without a checkpoint, as after a crash."""
        self.primary.stop("immediate")
        self.primary.start()

    def promote(self) -> None:
        """Make the standby the primary. The old one is left as it is."""
        self.primary, self.standby = self.standby, self.primary
        self.primary.run("pg_ctl", "-D", ".", "-w", "promote")

    def replace_standby(self) -> None:
        """End the old primary, and make a new standby from the new primary."""
        self.standby.kill()
        shutil.rmtree(self.standby.data)
        self.standby = self._new_standby()

    def wait_for_standby(self) -> None:
        """Wait until everything that is committed is on the standby as well."""
        deadline = time.monotonic() + CATCH_UP_SECONDS
        caught_up = (
            "select true from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"
            " and flush_lsn >= pg_current_wal_flush_lsn()"
        )
        while not self.primary.execute(caught_up):
            if time.monotonic() > deadline:
                raise RuntimeError("the standby does not catch up")
            time.sleep(0.02)

    def _new_standby(self) -> Node:
        self._copies += 1
        owner = self.primary.data.stat()
        home = self._directory / f"copy{self._copies}"
        data = home / "data"
        data.mkdir(parents=True, mode=0o700)
        home.chmod(0o711)
        os.chown(data, owner.st_uid, owner.st_gid)
        node = Node(data, self._binaries)
        node.run("pg_basebackup", "-D", ".", "-R", "-c", "fast", "-X", "stream", "-d", self.primary.conninfo)
        (data / ".s.PGSQL.5432.lock").unlink()  # The copy has the lock of the primary's socket.
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")  # Once promoted, it has no standby yet.
        node.start()
        self.primary.execute("alter system set synchronous_standby_names = '*'")
        self.primary.execute("select pg_reload_conf()")
        self.wait_for_standby()
        return node


def until_gone(processes: list[int]) -> None:
    """Wait until processes have ended."""
    while any(os.path.exists(f"/proc/{process}") for process in processes):  # noqa: PTH110
        time.sleep(0.01)


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
