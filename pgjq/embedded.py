"""A real PostgreSQL in a directory, from the binaries of the extra ``embedded``.

The server listens only on a unix socket, which only its user (and root) can reach. Any number of processes may use one
directory: they share one server, and the last process to leave stops it. Two rules keep that safe:

* A process holds ``lock`` exclusively while it starts or stops a server, so these never overlap.
* Each process that uses the server holds ``users`` shared. The kernel releases it when a process dies, so a killed
  process never counts as a user. It leaves the server running for the next process that starts the directory.

The data directory and the programs that run on it are in `embedded_cluster.py`.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self
from urllib.parse import quote

from pgjq.embedded_cluster import PORT, Cluster, open_cluster
from pgjq.errors import StorageUnavailableError
from pgjq.fork import ForkCheck

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


class EmbeddedServer:
    """One use of the server in a directory, from `start` to `stop` or the exit of Python."""

    def __init__(self, cluster: Cluster, use: IO[str]) -> None:
        self.directory = cluster.home
        self.binaries = cluster.binaries
        self._cluster = cluster
        self._socket = cluster.socket
        self._use = use
        self._fork = ForkCheck()

    @classmethod
    def start(cls, directory: Path | None = None, *, settings: Mapping[str, str] | None = None) -> Self:
        """Start the server in `directory`, or join the one that already runs there.

        `settings` are server parameters such as ``{"max_connections": "300"}``. They apply while the server runs: a
        process that joins a running server gets the settings of the process that started it.
        """
        home = (directory or default_directory()).expanduser().resolve()
        with _translated_errors(home):
            home.mkdir(parents=True, exist_ok=True)
            with _lock(home):
                cluster = open_cluster(home)
                cluster.ensure_running(settings or {})
                server = cls(cluster, _become_user(home))
        atexit.register(server.stop)
        return server

    @property
    def conninfo(self) -> str:
        """The URL of the default database, as its superuser."""
        return self.conninfo_for("postgres")

    def conninfo_for(self, database: str) -> str:
        """Return the URL of another database of this server; it must exist before a connect."""
        return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(self._socket))}&port={PORT}"

    def stop(self) -> None:
        """Leave the server, and stop it if no other process uses it. A second call does nothing."""
        # A forked child inherits this object; only its parent stops the server.
        if self._use.closed or self._fork.happened:
            return
        atexit.unregister(self.stop)
        with suppress(FileNotFoundError), _lock(self.directory):  # The directory may have been deleted.
            if _is_last_user(self._use):
                self._cluster.halt()
        _release(self._use)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def default_directory() -> Path:
    """Return the default directory: in the user's data, for root in the system's."""
    # Root's home is closed to the server's user, and must stay closed.
    usual = Path("/var/lib") if os.geteuid() == 0 else Path.home() / ".local" / "share"
    return Path(os.environ.get("XDG_DATA_HOME") or usual) / "pgjq" / "postgres"


@contextmanager
def _lock(home: Path) -> Generator[None]:
    file = (home / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        _release(file)


def _become_user(home: Path) -> IO[str]:
    use = (home / "users").open("a")
    fcntl.flock(use, fcntl.LOCK_SH)
    return use


def _is_last_user(use: IO[str]) -> bool:
    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _release(file: IO[str]) -> None:
    # Closing alone would not release the lock while a forked child has the file open.
    fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


@contextmanager
def _translated_errors(home: Path) -> Generator[None]:
    try:
        yield
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        said = (error.stderr or error.stdout) if isinstance(error, subprocess.CalledProcessError) else error
        log = home / "data" / "server.log"
        message = f"the embedded PostgreSQL in {home} could not start: {str(said).strip()}\nIts log is {log}"
        raise StorageUnavailableError(message + _last_lines(log)) from error


def _last_lines(log: Path) -> str:
    try:
        return ":\n" + "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    except OSError:
        return " (it was never written)."
