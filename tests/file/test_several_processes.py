"""Processes share a directory: each job goes to one of them, and each hears at once what the others do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import (
    Client,
    FileStorage,
    LeaderElection,
    LeasePolicy,
    Queue,
    Reaper,
    StorageUnavailableError,
    Worker,
    open_storage,
)
from pgjq.blocking import drive
from pgjq.storage.file import disk, wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgjq.testing import ManualClock

ROOT = Path(__file__).parents[2]
POLICY = LeasePolicy(lease=30, heartbeat=10)
CLAIMER = """
import json, sys
import pgjq
from pgjq.blocking import drive
ops = pgjq.FileStorage(sys.argv[1]).operations("sync")
print("ready", flush=True)
sys.stdin.readline()
taken = []
while jobs := drive(ops.claim(["q"], worker=sys.argv[2], limit=3, policy=pgjq.LeasePolicy())):
    taken += [job.lease.id for job in jobs]
print(json.dumps(taken))
"""
HOLDER = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(100)
"""


@pytest.fixture
def other(directory: Path, storage: FileStorage, clock: ManualClock) -> Iterator[FileStorage]:
    """Another storage on the same directory: it shares nothing but files with the first, as if in another process."""
    del storage
    other = FileStorage(directory, clock=clock)
    yield other
    other.close()


def test_processes_that_claim_at_the_same_time_share_the_jobs_out(directory: Path) -> None:
    ids = [str(n) for n in range(150)]
    with Client(FileStorage(directory)) as client:
        client.enqueue_many("q", [(job_id, None) for job_id in ids])
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, str(directory), f"worker {n}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for rival in rivals:
        assert rival.stdout
        rival.stdout.readline()
    for rival in rivals:  # All are told before the first one is waited for.
        assert rival.stdin
        print("go", file=rival.stdin, flush=True)
    taken = [json.loads(rival.communicate()[0]) for rival in rivals]
    assert sorted(job_id for share in taken for job_id in share) == sorted(ids)


def test_a_sleeper_is_woken_by_another_process(storage: FileStorage, other: FileStorage) -> None:
    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(drive, storage.operations("sync").wait_for_work(["q"], 60, 60))
        wait_for_a_bell(storage)
        Client(other).enqueue("q", "a", 1)
        assert sleeping.result()


def test_a_sleeper_finds_work_by_itself_when_no_bell_rings(
    storage: FileStorage, other: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "FLOOR", 0.01)
    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(drive, storage.operations("sync").wait_for_work(["q"], 60, 60))
        wait_for_a_bell(storage).unlink()
        Client(other).enqueue("q", "a", 1)
        assert sleeping.result()


def test_a_file_system_without_pipes_is_looked_at_instead(
    storage: FileStorage, other: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "mkfifo", refuse)
    heard = drive(storage.operations("sync").subscribe("q"))
    Client(other).enqueue("q", "a", 1)
    assert [event.name for event in drive(heard.next(60))] == ["queued"]


def wait_for_a_bell(storage: FileStorage) -> Path:
    while not (bells := list(storage.layout.notifications.glob("[!.]*"))):
        time.sleep(0.001)
    return bells[0]


def test_a_subscriber_hears_the_life_of_a_job_in_other_processes(
    storage: FileStorage, other: FileStorage, clock: ManualClock
) -> None:
    heard = drive(storage.operations("sync").subscribe())
    client, ops = Client(other), other.operations("sync")
    client.enqueue("q", "a", 1)
    drive(ops.claim(["q"], worker="ann", limit=1, policy=POLICY))
    clock.advance(30)
    drive(ops.reap())
    client.cancel("q", "a")
    events: list[Any] = []
    while len(events) < 5:
        events += drive(heard.next(60))
    assert [event.name for event in events] == ["queued", "processing", "stalled", "failing", "cancelled"]
    assert (events[2].count, events[2].action, events[2].reason) == (1, "recovered", "lease")


@pytest.mark.parametrize(("times", "heard_of"), [(1, ["a", "b", "c", "d"]), (2, ["a", "c", "d"])])
def test_events_around_a_journal_that_is_written_anew_are_heard_or_counted(
    storage: FileStorage, other: FileStorage, times: int, heard_of: list[str]
) -> None:
    """A subscriber that missed at most one journal gets every event; of more, a notice that events were lost."""
    heard = drive(storage.operations("sync").subscribe())
    client = Client(other)
    with storage.replica._mutex.turn:  # It is busy with something else meanwhile.
        client.enqueue("q", "a", 1)
        rewrite(other)
        client.enqueue("q", "b", 1)
        if times == 2:
            rewrite(other)
        client.enqueue("q", "c", 1)
    client.enqueue("q", "d", 1)
    events: list[Any] = []
    while not events or events[-1].id != "d":
        events += drive(heard.next(60))
    assert [event.id for event in events] == heard_of
    assert heard.dropped == times - 1


def rewrite(storage: FileStorage) -> None:
    with storage.replica._mutex:
        storage.replica._rewrite()


def test_a_bell_of_a_dead_process_is_taken_down(storage: FileStorage) -> None:
    Client(storage).enqueue("q", "a", 1)
    dead = storage.layout.notifications / "1-dead.notify"
    os.mkfifo(dead)
    Client(storage).enqueue("q", "b", 1)
    assert not dead.exists()


def test_a_file_that_is_no_bell_is_not_written_to(storage: FileStorage) -> None:
    Client(storage).enqueue("q", "a", 1)
    foreign = storage.layout.notifications / "3-foreign.notify"
    foreign.write_text("")
    Client(storage).enqueue("q", "b", 1)
    assert foreign.read_text() == ""


def test_a_bell_that_is_being_hung_up_is_left_alone(storage: FileStorage) -> None:
    Client(storage).enqueue("q", "a", 1)
    hidden = storage.layout.notifications / ".2-new.notify"
    os.mkfifo(hidden)
    Client(storage).enqueue("q", "b", 1)
    assert hidden.exists()


def test_a_lock_that_a_stopped_process_keeps_is_an_error_and_no_hang(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    Client(storage).enqueue("q", "a", 1)
    monkeypatch.setattr(storage.replica._mutex, "patience", 0.05)
    command = [sys.executable, "-c", HOLDER, str(storage.layout.lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(StorageUnavailableError, match="locked"):
            Client(storage).enqueue("q", "b", 1)
        holder.kill()
    assert Client(storage).enqueue("q", "b", 1).status == "queued"


def test_a_forked_child_has_a_lock_and_a_view_of_its_own(storage: FileStorage) -> None:
    client = Client(storage)
    client.enqueue("q", "parent", 1)
    heard = drive(storage.operations("sync").subscribe())
    with storage.replica._mutex:  # A thread of the parent is in the middle of something.
        pid = os.fork()
        if pid == 0:
            os._exit(Client(storage).enqueue("q", "child", 1).status != "queued")
        time.sleep(0.05)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert os.waitpid(pid, 0)[1] == 0
    assert [event.id for event in drive(heard.next(60))] == ["child"]
    assert {job.id for job in client.find_jobs()} == {"parent", "child"}


def test_a_worker_in_several_processes_serves_a_directory(directory: Path) -> None:
    queue = Queue("q", storage=FileStorage(directory))
    queue.execute(lambda job: [job.payload, os.getpid()])
    queue.enqueue_many([(str(n), n) for n in range(40)])
    with Worker(queue, processes=2):
        heard = drive(queue.storage.operations("sync").subscribe("q"))
        while Client(queue.storage).get_queue_stats("q").completed < 40:
            drive(heard.next(1))
    results = [queue.get_result(str(n)) for n in range(40)]
    assert [n for n, _ in results] == list(range(40))
    assert os.getpid() not in {pid for _, pid in results}
    queue.storage.close()


def test_threads_share_a_sync(storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one of them waits for the disk the others write, and the next sync is for all of them."""
    client = Client(storage)
    client.enqueue("q", "first", 1)
    synced, written = [], threading.Barrier(9)
    real = disk.sync_data

    def wait_for_all(fd: int) -> None:
        if not synced:
            synced.append("first")
            written.wait(60)
            time.sleep(0.1)
        else:
            synced.append("more")
        real(fd)

    monkeypatch.setattr(disk, "sync_data", wait_for_all)

    def enqueue(n: int) -> None:
        if n:
            written.wait(60)
        client.enqueue("q", str(n), n)

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(enqueue, range(9)))
    assert len(synced) < 5
    assert client.get_queue_stats("q").queued == 10


@pytest.mark.parametrize("url", ["file://{}", "file://localhost{}"])
def test_a_url_names_a_directory(memory_disk: Path, url: str) -> None:
    storage = open_storage(url.format(f"{memory_disk}/a%20b%3F"))
    with Client(storage) as client:
        client.enqueue("q", "a", 1)
    assert (memory_disk / "a b?" / "journal").exists()


def test_an_operation_that_fails_leaves_those_beside_it_on_the_disk(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that throws away what it knows, because its write failed, does so before another's was synced."""
    client = Client(storage)
    client.enqueue("q", "first", 1)
    synced: list[int] = []
    real = disk.sync_data
    monkeypatch.setattr(disk, "sync_data", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size)))
    appended = storage.replica._journal
    assert appended
    storage.replica.do(lambda jobs: jobs.change(jobs.records[1], checkpoint=b"unsynced"), durable=False)
    end = appended.end

    def fail(_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageUnavailableError):
        storage.replica.do(fail)
    appended.sync(end)
    assert synced == [end]


def test_an_answer_leaves_only_when_all_that_it_is_built_on_is_synced(
    storage: FileStorage, other: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(storage)
    client.enqueue("q", "a", 1)
    synced: list[int] = []
    real = disk.sync_data
    monkeypatch.setattr(disk, "sync_data", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size)))

    def size() -> int:
        return storage.layout.journal.stat().st_size

    for call in (
        lambda: client.enqueue("q", "b", 1),
        lambda: drive(storage.operations("sync").claim(["q"], worker="ann", limit=1, policy=POLICY)),
        lambda: client.cancel("q", "b"),
    ):
        call()
        assert synced.pop() == size()
    other.replica.do(lambda jobs: jobs.change(jobs.records[1], checkpoint=b"unsynced"), durable=False)
    assert synced == []
    client.get_status("q", "a")
    assert synced == [size()]


def test_of_those_who_find_an_office_lapsed_at_the_same_moment_one_takes_it(
    directory: Path, clock: ManualClock
) -> None:
    storages = [FileStorage(directory, clock=clock) for _ in range(4)]
    ready = threading.Barrier(len(storages))

    def elect(n: int) -> bool:
        ready.wait(60)
        return drive(storages[n].operations("sync").elect("reaper", f"candidate {n}", ttl=30))

    with ThreadPoolExecutor(len(storages)) as pool:
        for _ in range(20):
            assert sum(pool.map(elect, range(len(storages)))) == 1
            clock.advance(31)
    for storage in storages:
        storage.close()


def test_of_two_reapers_one_leads_and_the_other_follows_at_once(directory: Path) -> None:
    quick = LeaderElection(enabled=True, lock_ttl=0.9, renewal_interval=0.1, acquire_retry_interval=0.02)
    storages = [FileStorage(directory) for _ in range(2)]
    first, second = (Reaper(storage=storage, leader_election=quick) for storage in storages)
    leads = threading.Event()
    with first:
        wait_until(lambda: first.is_leader)
        second.on("leadership_acquired", lambda _: leads.set())
        second.start()
        assert not second.is_leader
    assert leads.wait(60)
    second.stop()
    for storage in storages:
        storage.close()


def wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.005)


def test_a_question_is_answered_by_another_process(directory: Path) -> None:
    asking, answering = FileStorage(directory), FileStorage(directory)
    queue = Queue("q", storage=answering)
    queue.execute(lambda job: job.payload * 2)
    with queue:
        assert [Client(asking).enqueue_and_wait("q", str(n), n, timeout=60) for n in range(5)] == [0, 2, 4, 6, 8]
    asking.close()
    answering.close()
