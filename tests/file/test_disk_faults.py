"""Disks that are full or read-only, files that are damaged or do not belong, clocks that are set back."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import (
    Client,
    FileStorage,
    LeasePolicy,
    Queue,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
    ValidationError,
)
from pgjq.blocking import drive
from pgjq.storage.file import disk, replica
from pgjq.storage.file.journal_format import decode_line, encode_line
from pgjq.storage.model import runs
from pgjq.storage.workers import Registration
from tests.worker.conftest import Events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pgjq.testing import ManualClock

POLICY = LeasePolicy(lease=30, heartbeat=10)


def registration(worker: str) -> Registration:
    """Make a registration of a worker."""
    return Registration("1", worker, ("q",), 10.0)


@pytest.fixture
def client(storage: FileStorage) -> Client:
    return Client(storage)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for 200 kB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or run("mount", "-t", "tmpfs", "-o", "size=200k", "pgjq-test", place):
        pytest.skip("mounting a disk takes root; the limit on the size of files is tested instead")
    yield place
    run("umount", "-l", place)


def run(*words: Any) -> int:
    return subprocess.run([str(word) for word in words], check=False, capture_output=True).returncode


def test_a_full_disk_refuses_the_call_and_keeps_what_was_there(small_disk: Path) -> None:
    with Client(FileStorage(small_disk / "jobs")) as client:
        accepted = fill(client)
        assert 0 < accepted < 200
        assert {job.id for job in client.find_jobs(limit=1000)} == {str(n) for n in range(accepted)}
    with Client(FileStorage(small_disk / "jobs")) as client:
        assert client.get_queue_stats("q").queued == accepted
        assert (small_disk / "jobs" / "journal").read_bytes().endswith(b"\n")
        run("mount", "-o", "remount,size=1m", small_disk)
        assert client.enqueue("q", "after", "x" * 3000).status == "queued"


def fill(client: Client) -> int:
    """Enqueue until there is no room, and return how many were accepted."""
    for accepted in range(1000):
        try:
            client.enqueue("q", str(accepted), "x" * 3000)
        except StorageUnavailableError as error:
            assert "make room" in str(error)  # noqa: PT017  (which of them is refused is what is counted)
            break
    with pytest.raises(StorageUnavailableError, match="full"):
        client.enqueue_many("q", [(f"more {n}", "x" * 3000) for n in range(100)])
    return accepted


LIMITED = """
import resource, signal, sys
import pgjq
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
client = pgjq.Client(pgjq.FileStorage(sys.argv[1]))
client.enqueue("q", "first", 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
accepted = 0
try:
    while accepted < 1000:
        client.enqueue("q", str(accepted), "x" * 3000)
        accepted += 1
except pgjq.StorageUnavailableError as error:
    print(accepted, error)
print(client.get_queue_stats("q").queued)
"""


def test_a_line_that_fits_in_part_is_not_there_at_all(directory: Path) -> None:
    """A limit on the size of files lets the first part of a write through."""
    answer = subprocess.run(
        [sys.executable, "-c", LIMITED, str(directory)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    accepted, _, message = answer[0].partition(" ")
    assert "limit" in message
    assert int(answer[1]) == int(accepted) + 1
    lines = (directory / "journal").read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert all(decode_line(line) is not None for line in lines)


def test_a_worker_goes_on_when_there_is_room_again(small_disk: Path) -> None:
    queue = Queue("q", storage=FileStorage(small_disk / "jobs"), lease_policy=LeasePolicy(lease=60, heartbeat=20))
    queue.enqueue("a", None)
    ballast = small_disk / "jobs" / ".ballast"

    @queue.execute
    def fill_the_disk(_: Any) -> str:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        return "y" * 8000

    refused: list[Any] = []

    def make_room(error: Exception) -> None:
        refused.append(error)
        ballast.unlink(missing_ok=True)

    queue.on("error", make_room)
    done = []
    queue.on("completed", done.append)
    with queue:
        wait_until(lambda: bool(done))
    assert isinstance(refused[0], StorageUnavailableError)
    assert queue.get_result("a") == "y" * 8000
    queue.storage.close()


def wait_until(true: Any) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_read_only_disk_is_a_clear_error(small_disk: Path) -> None:
    with Client(FileStorage(small_disk / "jobs")) as client:
        client.enqueue("q", "a", 1)
    run("mount", "-o", "remount,ro", small_disk)
    with Client(FileStorage(small_disk / "jobs")) as client, pytest.raises(StorageError, match="read-only"):
        client.enqueue("q", "b", 1)
    with Client(FileStorage(small_disk / "other")) as client, pytest.raises(StorageError, match="read-only"):
        client.enqueue("q", "b", 1)


def test_a_directory_that_may_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    pid = os.fork()
    if pid == 0:
        os._exit(try_as_nobody(locked / "jobs"))
    assert os.waitpid(pid, 0)[1] == 0


def try_as_nobody(directory: Path) -> int:
    """Enqueue as a user who may not, and return 0 if that is refused as it should be."""
    try:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        Client(FileStorage(directory)).enqueue("q", "a", 1)
    except StorageError as error:
        return 0 if "may not write there" in str(error) and not isinstance(error, StorageUnavailableError) else 2
    except BaseException:  # noqa: BLE001
        return 3
    return 1


def test_something_that_is_no_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "file", tmp_path / "file" / "jobs", tmp_path / "loop"):
        with Client(FileStorage(path)) as client, pytest.raises(StorageError, match="not a directory"):
            client.enqueue("q", "a", 1)
    with Client(FileStorage(tmp_path / "loop" / "jobs")) as client, pytest.raises(StorageError, match="back to itself"):
        client.enqueue("q", "a", 1)


def test_a_directory_in_the_place_of_the_journal_is_a_clear_error(directory: Path) -> None:
    (directory / "journal").mkdir(parents=True)
    with Client(FileStorage(directory)) as client, pytest.raises(StorageError, match="move that away"):
        client.enqueue("q", "a", 1)


def test_a_link_to_a_directory_is_that_directory(directory: Path) -> None:
    link = directory.with_name("link")
    link.symlink_to(directory)
    with Client(FileStorage(directory)) as client, Client(FileStorage(link)) as other:
        client.enqueue("q", "a", 1)
        assert other.enqueue("q", "a", 1).status == "duplicate"


def test_a_directory_with_other_things_in_it_is_refused_and_left_alone(directory: Path) -> None:
    directory.mkdir()
    (directory / "thesis.tex").write_text("precious")
    (directory / ".hidden").write_text("")
    with Client(FileStorage(directory)) as client, pytest.raises(StorageError, match=r"thesis\.tex.*empty"):
        client.enqueue("q", "a", 1)
    assert (directory / "thesis.tex").read_text() == "precious"
    (directory / "thesis.tex").unlink()
    with Client(FileStorage(directory)) as client:
        assert client.enqueue("q", "a", 1).status == "queued"


def test_foreign_files_are_moved_aside_and_reported_once(
    directory: Path, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.enqueue("q", "a", 1)
    client.close()
    foreign = [directory / "0000000001.job", directory / "workers" / "x", directory / "leaders" / "y.json"]
    for path in foreign:
        path.write_text("what is this?")
    for _ in range(2):
        with Client(FileStorage(directory)) as again:
            assert again.get_queue_stats("q").queued == 1
    assert not any(path.exists() for path in foreign)
    assert len(list((directory / "aside").iterdir())) == 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3


def test_a_damaged_line_costs_only_what_it_said(
    directory: Path, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(5):
        client.enqueue("q", str(n), n)
    client.close()
    journal = directory / "journal"
    damaged = journal.read_bytes().replace(b'"id":"2"', b'"id":"X"')
    journal.write_bytes(damaged)
    for _ in range(2):
        with Client(FileStorage(directory)) as again:
            assert [job.id for job in again.find_jobs()] == ["0", "1", "3", "4"]
            assert again.enqueue("q", "2", 2).status in ("queued", "duplicate")
            again.delete_job("q", "2")
    assert [path.read_bytes() for path in (directory / "aside").iterdir()] == [damaged]
    assert ["damaged" in record.message for record in caplog.records] == [True]


def test_damage_under_a_storage_that_is_open_is_repaired_from_what_it_knows(
    directory: Path, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.enqueue("q", "a", 1)
    with (directory / "journal").open("ab") as journal:
        journal.write(b"rubbish\n")
    assert client.enqueue("q", "b", 1).status == "queued"
    client.close()
    with Client(FileStorage(directory)) as again:
        assert [job.id for job in again.find_jobs()] == ["a", "b"]
    assert ["damaged" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("cut", [1, 40, 10**6], ids=["in a line", "lines", "all of it"])
def test_a_journal_that_is_cut_off_under_its_users_is_the_same_for_all_of_them(
    directory: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One of them has written again before the other looks: where that one had read to, there is something else."""
    with Client(FileStorage(directory)) as here, Client(FileStorage(directory)) as there:
        here.enqueue_many("q", [("a", 1)])
        here.enqueue("q", "b", 2)
        there.find_jobs()
        journal = directory / "journal"
        os.truncate(journal, max(0, journal.stat().st_size - cut))
        here.enqueue("q", "c", "x" * 1000)
        assert there.enqueue("q", "d", 4).status == "queued"
        found = [job.id for job in there.find_jobs()]
        assert found == [job.id for job in here.find_jobs()]
    with Client(FileStorage(directory)) as again:
        assert [job.id for job in again.find_jobs()] == found
    assert found[-2:] == ["c", "d"]
    assert "b" not in found
    assert ["truncated" in record.message for record in caplog.records] == [True, True]


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\0" * 5000, b"rubbish\n" * 3, "ü€".encode("utf-16")])
def test_a_journal_of_rubbish_is_an_empty_one(directory: Path, content: bytes) -> None:
    directory.mkdir()
    (directory / "journal").write_bytes(content)
    with Client(FileStorage(directory)) as client:
        assert client.find_jobs() == []
        assert client.enqueue("q", "a", 1).status == "queued"
    with Client(FileStorage(directory)) as client:
        assert [job.id for job in client.find_jobs()] == ["a"]


def test_a_journal_of_another_version_is_left_alone(directory: Path, client: Client) -> None:
    client.enqueue("q", "a", 1)
    client.close()
    journal = directory / "journal"
    future = encode_line({"journal": 99}) + journal.read_bytes()
    journal.write_bytes(future)
    with Client(FileStorage(directory)) as again, pytest.raises(StorageError, match="another version"):
        again.enqueue("q", "b", 1)
    assert journal.read_bytes() == future


@pytest.mark.parametrize("name", ["workers/ann.worker", "leaders/reaper.lock"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": 1}', b"\xff\xfe", b'{"owner":"x","expires_at":1}'])
def test_a_truncated_worker_or_leader_file_is_moved_aside(
    storage: FileStorage, directory: Path, name: str, content: bytes
) -> None:
    ops = storage.operations("sync")
    drive(ops.worker_seen(registration("bob")))
    (directory / name).write_bytes(content)
    assert [w.id for w in drive(ops.workers())] == ["bob"]
    assert drive(ops.elect("reaper", "bob", ttl=30))
    assert [path.read_bytes() for path in (directory / "aside").iterdir()] == [content]


def test_a_directory_in_the_place_of_a_worker_or_leader_is_moved_aside(storage: FileStorage, directory: Path) -> None:
    ops = storage.operations("sync")
    drive(ops.worker_seen(registration("bob")))
    (directory / "workers" / "ann-1.worker").mkdir()
    (directory / "leaders" / "reaper.lock").mkdir()
    drive(ops.worker_seen(registration("ann")))
    assert {w.id for w in drive(ops.workers())} == {"ann", "bob"}
    assert drive(ops.elect("reaper", "bob", ttl=30))
    assert len(list((directory / "aside").iterdir())) == 2


def test_nothing_happened_when_the_disk_fails_to_sync(
    storage: FileStorage, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that failed to write forgets it; so all is written anew before the next answer."""
    client = Client(storage)
    client.enqueue("q", "a", 1)
    before = (directory / "journal").stat().st_ino

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_data", fail)
        with pytest.raises(StorageUnavailableError, match="Input/output"):
            client.enqueue("q", "b", 1)
    client.enqueue("q", "c", 1)
    assert (directory / "journal").stat().st_ino != before
    assert {job.id for job in client.find_jobs()} >= {"a", "c"}


def test_a_clock_set_back_keeps_no_job_of_a_dead_worker_for_long(storage: FileStorage, clock: ManualClock) -> None:
    client, ops = Client(storage), storage.operations("sync")
    client.enqueue("q", "a", 1)
    drive(ops.claim(["q"], worker="ann", limit=1, policy=POLICY))
    clock.advance(-3600)
    assert drive(ops.reap()) == []
    clock.advance(30)
    assert [stalled.id for stalled in drive(ops.reap())] == ["a"]


def test_a_clock_set_back_neither_reorders_nor_loses_jobs(storage: FileStorage, clock: ManualClock) -> None:
    client, ops = Client(storage), storage.operations("sync")
    for n in range(4):
        client.enqueue("q", str(n), n)
        clock.advance(-600)
    claimed = drive(ops.claim(["q"], worker="ann", limit=10, policy=POLICY))
    assert [job.lease.id for job in claimed] == ["0", "1", "2", "3"]


def test_a_clock_set_back_elects_nobody_beside_the_leader_and_keeps_no_dead_one(
    storage: FileStorage, clock: ManualClock
) -> None:
    ops = storage.operations("sync")
    assert drive(ops.elect("reaper", "ann", ttl=30))
    clock.advance(-3600)
    assert not drive(ops.elect("reaper", "bob", ttl=30))
    clock.advance(29)
    assert not drive(ops.elect("reaper", "bob", ttl=30))
    clock.advance(1)
    assert drive(ops.elect("reaper", "bob", ttl=30))
    assert not drive(ops.elect("reaper", "ann", ttl=30))


def test_an_office_lapses_after_its_term(storage: FileStorage, clock: ManualClock, directory: Path) -> None:
    ops = storage.operations("sync")
    assert drive(ops.elect("reaper", "ann", ttl=30))
    assert set(json.loads((directory / "leaders" / "reaper.lock").read_text())) == {"owner", "expires_at", "ttl"}
    clock.advance(29)
    assert drive(ops.elect("reaper", "ann", ttl=30))
    clock.advance(29)
    assert not drive(ops.elect("reaper", "bob", ttl=30))
    clock.advance(1)
    assert drive(ops.elect("reaper", "bob", ttl=30))


@pytest.mark.parametrize("name", ["../../../evil", "/etc/passwd", "..", ".", "ü€😀" * 100, "x" * 5000, "a\0b", "-rf"])
def test_no_name_leaves_the_directory(storage: FileStorage, directory: Path, name: str) -> None:
    ops = storage.operations("sync")
    drive(ops.worker_seen(registration(name)))
    assert drive(ops.elect(name, name, ttl=30))
    assert [worker.id for worker in drive(ops.workers())] == [name]
    assert len(list((directory / "workers").iterdir())) == len(list((directory / "leaders").iterdir())) == 1
    assert {path.name for path in directory.parent.iterdir()} == {"jobs"}


def test_the_file_of_a_worker_is_touched_while_it_lives_and_removed_when_it_stops_or_is_old(
    storage: FileStorage, clock: ManualClock, directory: Path
) -> None:
    ops, folder = storage.operations("sync"), directory / "workers"
    for name in ("ann", "bob", "cid"):
        drive(ops.worker_seen(registration(name)))
    clock.advance(86400)
    drive(ops.worker_seen(registration("ann")))
    drive(ops.worker_stopped(registration("cid")))
    assert {path.name for path in folder.iterdir()} == {"ann-1.worker", "bob-1.worker"}
    clock.advance(30)
    drive(ops.prune())
    assert [path.name for path in folder.iterdir()] == ["ann-1.worker"]
    assert (folder / "ann-1.worker").stat().st_mtime == clock().timestamp() - 30


def test_names_that_look_alike_are_told_apart(storage: FileStorage) -> None:
    names = ["a", "A", "a.worker", "%61", "a ", "x" * 300 + "1", "x" * 300 + "2"]
    for name in names:
        drive(storage.operations("sync").worker_seen(registration(name)))
    assert {worker.id for worker in drive(storage.operations("sync").workers())} == set(names)


def test_two_directories_never_see_each_other(memory_disk: Path) -> None:
    with Client(FileStorage(memory_disk / "one")) as one, Client(FileStorage(memory_disk / "two")) as two:
        one.enqueue("q", "a", 1)
        assert two.find_jobs() == []
        assert two.enqueue("q", "a", 2).status == "queued"


def test_a_directory_that_is_removed_and_made_again_is_a_new_one(directory: Path) -> None:
    with Client(FileStorage(directory)) as here, Client(FileStorage(directory)) as there:
        here.enqueue("q", "a", 1)
        assert there.find_jobs()
        shutil.rmtree(directory)
        assert there.enqueue("q", "b", 1).status == "queued"
        assert [job.id for job in here.find_jobs()] == ["b"]


def test_a_long_journal_is_written_anew_and_says_the_same(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "LEAST", 10_000)
    with Client(FileStorage(directory)) as client, Client(FileStorage(directory)) as other:
        for n in range(300):
            client.enqueue("q", str(n), n)
            (client if n % 2 else other).cancel("q", str(n))
            other.enqueue("q", str(n), -n)
        found = [job.id for job in client.find_jobs(limit=1000)]
        assert found == [job.id for job in other.find_jobs(limit=1000)] == [str(n) for n in range(300)]
    written = (directory / "journal").stat().st_size
    with Client(FileStorage(directory)) as again:
        assert [job.id for job in again.find_jobs(limit=1000)] == found
        assert again.delete_job("q", "299")
        assert again.enqueue("q", "new", 1).status == "queued"
    assert written < 200_000


def test_a_journal_stays_short_when_every_process_does_but_little(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "LEAST", 5_000)
    for n in range(100):
        with Client(FileStorage(directory)) as client:
            client.enqueue("q", str(n), n)
            client.delete_job("q", str(n))
    assert (directory / "journal").stat().st_size < 6_000


def test_numbers_are_not_given_out_twice(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease names its job by number: a late outcome must not hit another job that got the same."""
    monkeypatch.setattr(replica, "LEAST", 0)
    with Client(FileStorage(directory)) as client:
        for n in range(3):
            client.enqueue("q", str(n), n)
            client.delete_job("q", str(n))
    with Client(FileStorage(directory)) as client:
        client.enqueue("q", "next", 1)
        (job,) = drive(client.storage.operations("sync").claim(["q"], worker="ann", limit=1, policy=POLICY))
        assert job.lease.key == 4


def test_what_it_does_not_promise_is_refused(storage: FileStorage) -> None:
    client = Client(storage)
    with pytest.raises(UnsupportedError, match="FileStorage has no transactions"):
        client.enqueue("q", "a", 1, connection=object())
    client.enqueue("q", "a", 1)
    (job,) = drive(storage.operations("sync").claim(["q"], worker="ann", limit=1, policy=POLICY))
    with pytest.raises(UnsupportedError, match="FileStorage has no transactions"):
        storage.operations("sync").job_transaction(job)


@pytest.mark.parametrize("directory", [None, 7, ""])
def test_what_is_no_path_is_refused(directory: Any) -> None:
    with pytest.raises(ValidationError, match="directory must"):
        FileStorage(directory)


def test_a_settlement_that_failed_to_sync_is_found_to_have_been_made(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker gets an error although the journal has the line: it publishes the ending, once."""
    queue = Queue("q", storage=FileStorage(directory), lease_policy=LeasePolicy(lease=60, heartbeat=20))
    sync, failures = disk.sync_data, iter([OSError(5, "Input/output error")])

    def fail_once(descriptor: int) -> None:
        for error in failures:
            raise error
        sync(descriptor)

    @queue.execute
    def work(_: Any) -> str:
        monkeypatch.setattr(disk, "sync_data", fail_once)
        return "done"

    ended, errors = Events(queue, "completed", "failing", "failed"), Events(queue, "error")
    queue.enqueue("a", None)
    with queue:
        assert [(event.name, event.result) for event in ended.wait()] == [("completed", "done")]
        errors.wait()
    queue.storage.close()
    assert len(ended.events) == 1
    assert "outcome refused: the lease is lost" not in caplog.messages


def test_a_claim_that_failed_to_sync_is_taken_over(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker gets an error although the journal has the line: the job runs nevertheless, in its only attempt."""
    storage = FileStorage(directory)
    queue = Queue("q", storage=storage, lease_policy=LeasePolicy(lease=60, heartbeat=20, reap_interval=20))
    claim, sync, claimed = runs.claim, disk.sync_data, threading.Event()

    def claim_and_fail(*args: Any, **options: Any) -> Any:
        found = claim(*args, **options)
        if found:
            claimed.set()
        return found

    def fail_once(descriptor: int) -> None:
        """Fail in whichever thread syncs the claim: one thread syncs what several have written."""
        if claimed.is_set() and not errors.events:
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(runs, "claim", claim_and_fail)
    monkeypatch.setattr(disk, "sync_data", fail_once)
    queue.execute(lambda job: job.attempts)
    ended, errors = Events(queue, "completed", "failing", "failed", "stalled"), Events(queue, "error")
    queue.enqueue("a", None, max_attempts=1)
    with queue:
        assert [(event.name, event.result) for event in ended.wait()] == [("completed", 1)]
        errors.wait()
    storage.close()
