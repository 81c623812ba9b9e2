"""Only the owner can read, write or lock the files of a FileStorage."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, FileStorage, LeasePolicy, StorageError, StorageUnavailableError
from pgjq.blocking import drive
from pgjq.storage.file import mutex
from pgjq.storage.workers import Registration

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 20.0
LOCK_AND_WAIT = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def use(directory: Path) -> None:
    """Make every kind of file that there is."""
    with closing(FileStorage(directory)) as storage:
        client, ops = Client(storage), storage.operations("sync")
        client.enqueue("q", "a", 1)
        drive(ops.worker_seen(Registration("1", "w", ("q",), 10.0)))
        drive(ops.elect("reaper", "me", ttl=30))
        drive(ops.claim(["q"], worker="w", limit=1, policy=LeasePolicy()))
        storage.listen()
        check(directory)


def check(directory: Path) -> None:
    for path in directory.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, (path, oct(path.stat().st_mode))


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o770])
def test_files_in_a_directory_that_is_there_are_their_owners_alone(mode: int, tmp_path: Path) -> None:
    directory = tmp_path / "jobs"
    directory.mkdir()
    directory.chmod(mode)
    before = os.umask(0)
    try:
        use(directory)
    finally:
        os.umask(before)
    assert stat.S_IMODE(directory.stat().st_mode) == mode


def test_files_that_others_could_read_are_closed_to_them(tmp_path: Path) -> None:
    use(tmp_path / "jobs")
    for path in (tmp_path / "jobs").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with closing(FileStorage(tmp_path / "jobs")) as storage:
        Client(storage).enqueue("q", "b", 1)
    for name in ("journal", "journal.lock", "workers", "leaders", "notifications", "aside"):
        assert stat.S_IMODE((tmp_path / "jobs" / name).stat().st_mode) & 0o077 == 0, name


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_world_writable_directory_is_refused(mode: int, tmp_path: Path) -> None:
    directory = tmp_path / "jobs"
    directory.mkdir()
    directory.chmod(mode)
    with (
        closing(FileStorage(directory)) as storage,
        pytest.raises(StorageError, match=r"every user may write to .*chmod 700"),
    ):
        Client(storage).enqueue("q", "a", 1)
    assert list(directory.iterdir()) == []


@needs_root
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "jobs"
    directory.mkdir()
    os.chown(directory, 12345, 12345)
    with closing(FileStorage(directory)) as storage, pytest.raises(StorageError, match="belongs to user 12345"):
        Client(storage).enqueue("q", "a", 1)


def test_a_directory_that_a_group_may_write_to_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "jobs"
    directory.mkdir()
    directory.chmod(0o770)
    use(directory)
    assert "the group of" in caplog.text


@needs_root
def test_another_user_cannot_lock_the_storage(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o001)
    directory = tmp_path / "jobs"
    directory.mkdir(0o755)
    use(directory)
    # A process that cannot open a file cannot lock it either.
    outsider = subprocess.run(
        ("/bin/cat", str(directory / "journal.lock")), user=65534, cwd="/", capture_output=True, text=True, check=False
    )
    assert outsider.returncode != 0
    assert "denied" in outsider.stderr


def test_a_lock_that_is_kept_is_an_error_that_names_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutex, "PATIENCE", 0.1)
    use(tmp_path / "jobs")
    command = (sys.executable, "-c", LOCK_AND_WAIT, str(tmp_path / "jobs" / "journal.lock"))
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder,
        closing(FileStorage(tmp_path / "jobs")) as storage,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        leaving = threading.Timer(LIMIT, holder.kill)  # A wait without a bound ends then, without an error.
        leaving.start()
        named = rf"process {holder.pid} \(.*, user {os.geteuid()}\) has kept .*journal.lock locked"
        try:
            with pytest.raises(StorageUnavailableError, match=named):
                Client(storage).enqueue("q", "b", 1)
        finally:
            leaving.cancel()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "journal.lock").symlink_to(tmp_path / "elsewhere")
    with closing(FileStorage(tmp_path / "jobs")) as storage, pytest.raises(StorageError):
        Client(storage).enqueue("q", "a", 1)
    assert not (tmp_path / "elsewhere").exists()
