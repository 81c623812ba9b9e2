"""A large write, which goes over two connections: what may come in between, and what others see of it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.errors import StorageUnavailableError
from pgjq.job import NewJob
from pgjq.spark import commit
from pgjq.spark.options import read_options
from pgjq.spark.writer import JobsWriter, Staged, read_written
from pgjq.storage.postgres.oneshot import OneShotConnection
from tests.spark.finished_jobs import ask, do
from tests.spark.write_without_spark import ids, rows, stages, writer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

BODIES = "select count(*) from pgjq.body"
NAMES = [f"{n:04}" for n in range(4_000)]


@pytest.fixture(autouse=True)
def large(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every write is a large one."""
    monkeypatch.setattr(commit, "LARGE", 1)
    yield
    do(database, "select pgjq.drop_old_stages(-3600)")


def stage(url: str, names: Sequence[str], **options: Any) -> tuple[JobsWriter, Staged]:
    one = writer(url, **options)
    return one, one.write(iter([rows(names)]))


def die(url: str, names: Sequence[str], **options: Any) -> tuple[JobsWriter, Staged]:
    """Stage names, and write them; the server goes away after the bodies were committed and before the jobs are."""
    fetch, gone = OneShotConnection.fetch, list[str]()

    def refuse(self: OneShotConnection, name: str, params: dict[str, Any] | None = None) -> Any:
        if gone or name == "close_write":
            gone.append(name)
            raise StorageUnavailableError("gone")
        return fetch(self, name, params)

    one, message = stage(url, names, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneShotConnection, "fetch", refuse)
        with pytest.raises(StorageUnavailableError):
            one.commit([message])
    return one, message


def notes(url: str) -> int:
    return ask(url, "select count(*) from pgjq.bulk_body")[0][0]


def counts(url: str, write_id: str) -> tuple[int, int] | None:
    written = read_written(read_options({"url": url}), write_id)
    return None if written is None else (written.jobs, written.duplicates)


def test_both_connections_add_bodies_and_each_of_them_once(database: str) -> None:
    """In parts, from several stages, of which one has a single page."""
    names = [f"{n:05}" for n in range(20_000)]
    one = writer(database, writeId="w")
    staged = [one.write(iter([rows(names[:-10])])), one.write(iter([rows(names[-10:])]))]
    (queue_id,) = ask(database, "select pgjq.get_or_create_queue('mail')")[0]
    with psycopg.connect(database) as connection:
        added = "select pgjq.add_bodies('w', 0, %s, now(), null, %s, %s)"
        most, rest = (
            connection.execute(added, (queue_id, [message.stage for message in staged], the_rest)).fetchall()[0][0]
            for the_rest in (False, True)
        )
        connection.rollback()
    assert (most + rest, 0 < rest < most) == (20_000, True)
    one.commit(staged)
    assert (sorted(ids(database)), counts(database, "w"), stages(database)) == (names, (20_000, 0), [])
    assert notes(database) == 0


@pytest.mark.parametrize("taken", ["0000", "2000", "3999"])
def test_an_id_that_is_taken_is_a_duplicate_wherever_it_turns_up(
    postgres: pgjq.PostgresStorage, database: str, taken: str
) -> None:
    pgjq.Client(postgres).enqueue("mail", taken, 1)
    one, message = stage(database, NAMES, writeId="w")
    one.commit([message])
    assert (sorted(ids(database)), counts(database, "w"), stages(database)) == (NAMES, (3_999, 1), [])
    assert ask(database, BODIES) == [(4_000,)]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_somebody_who_is_just_adding_an_id_is_waited_for(database: str, end: str) -> None:
    one, message = stage(database, NAMES, writeId="w")
    with psycopg.connect(database) as rival, ThreadPoolExecutor() as pool:
        rival.execute("select pgjq.enqueue('mail', '1', id => '2000')")
        committing = pool.submit(one.commit, [message])
        time.sleep(1.5)  # Over two connections nobody waits as long.
        assert not committing.done()
        getattr(rival, end)()
        committing.result(20)
    assert (sorted(ids(database)), counts(database, "w")) == (NAMES, (3_999, 1) if end == "commit" else (4_000, 0))
    assert stages(database) == []


@contextmanager
def about_to_commit(url: str, message: Staged) -> Generator[psycopg.Connection[Any]]:
    """Be a writer whose bodies are committed and whose jobs are not."""
    with psycopg.connect(url) as here:
        opened = here.execute("select queue_id, at from pgjq.open_write('mail', 'w', 0)").fetchone()
        assert opened is not None
        here.execute(
            "select pgjq.enqueue_staged('mail', %s, %s, null, %s, %s, true)", (*opened, [message.stage], message.rows)
        )
        for the_rest in (False, True):
            added = "select pgjq.add_bodies('w', 0, %s, %s, null, %s, %s)"
            ask(url, added, *opened, [message.stage], the_rest)
        yield here


def test_whoever_wants_an_id_waits_for_a_writer_who_is_about_to_commit_it(
    postgres: pgjq.PostgresStorage, database: str
) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("mail")
    _, message = stage(database, ["a", "b"])
    with about_to_commit(database, message) as here, ThreadPoolExecutor() as pool:
        assert client.get_status("mail", "a") is None
        adding = pool.submit(client.enqueue, "mail", "a", 1)
        time.sleep(0.5)
        assert not adding.done()
        here.commit()
        assert adding.result(20).status == "duplicate"
    assert ids(database) == ["a", "b"]


def test_a_snapshot_that_cannot_tell_is_a_failure_to_serialise(postgres: pgjq.PostgresStorage, database: str) -> None:
    pgjq.Client(postgres).create_queue("mail")
    _, message = stage(database, ["a", "b"])
    with about_to_commit(database, message) as here, psycopg.connect(database) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("select from pgjq.body")
        here.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            old.execute("select pgjq.enqueue('mail', '1', id => 'a')")
    assert ids(database) == ["a", "b"]


def test_what_a_writer_that_died_has_left_is_nobodys(postgres: pgjq.PostgresStorage, database: str) -> None:
    die(database, NAMES, writeId="w")
    left = ask(database, BODIES)
    assert (left[0][0] > 2, counts(database, "w")) == (True, None)
    client = pgjq.Client(postgres)
    assert (client.get_status("mail", "0000"), ask(database, "select from pgjq.jobs")) == (None, [])
    assert client.enqueue("mail", "0000", 1).status == "queued"
    assert [answer.status for answer in client.enqueue_many("mail", [NewJob("0000", 1), NewJob("0001", 1)])] == [
        "duplicate",
        "queued",
    ]
    assert (ids(database), ask(database, BODIES)) == (["0000", "0001"], left)


def test_a_write_that_is_made_again_starts_over(postgres: pgjq.PostgresStorage, database: str) -> None:
    one, message = die(database, NAMES, writeId="w")
    assert 0 < ask(database, BODIES)[0][0] <= len(NAMES)
    pgjq.Client(postgres).enqueue("mail", "2000", 1)
    one.commit([message])
    assert (sorted(ids(database)), counts(database, "w"), stages(database)) == (NAMES, (3_999, 1), [])
    assert ask(database, BODIES) == [(4_000,)]


@pytest.mark.parametrize("how", ["abort", "sweep", "stages lost", "another write", "again, staged anew"])
def test_what_was_left_goes_with_the_stages_or_with_the_next_write(database: str, how: str) -> None:
    one, message = die(database, NAMES)
    if how == "abort":
        one.abort([message])
    elif how == "sweep":
        do(database, "select pgjq.drop_old_stages(-3600)")
    elif how == "stages lost":  # As they are when the server crashes.
        do(database, f"drop table pgjq.{message.stage}; select pgjq.drop_old_stages(0)")
    elif how == "another write":
        other, staged = stage(database, ["another"])
        other.commit([staged])
        assert (ids(database), ask(database, BODIES)) == (["another"], [(1,)])
        return
    else:
        one, message = stage(database, NAMES, writeId="w")
        one.commit([message])
        assert (sorted(ids(database)), counts(database, "w")) == (NAMES, (4_000, 0))
        return
    assert (ids(database), ask(database, BODIES), stages(database), notes(database)) == ([], [(0,)], [], 0)


def test_without_a_second_connection_one_does_it_all(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = OneShotConnection.fetch

    def refuse(self: OneShotConnection, name: str, params: dict[str, Any] | None = None) -> Any:
        if name == "add_bodies":
            raise StorageUnavailableError("sorry, too many clients already")
        return fetch(self, name, params)

    monkeypatch.setattr(OneShotConnection, "fetch", refuse)
    one, message = stage(database, NAMES)
    one.commit([message])
    assert (ids(database), stages(database)) == (NAMES, [])


def test_a_commit_that_fails_leaves_no_body(postgres: pgjq.PostgresStorage, database: str) -> None:
    pgjq.Client(postgres).create_queue("mail", policy="key_strict_fifo")
    one, message = stage(database, NAMES, writeId="w")
    with pytest.raises(pgjq.StorageError, match="every job needs a singleton_key"):
        one.commit([message])
    assert (ids(database), ask(database, BODIES), counts(database, "w")) == ([], [(0,)], None)


def test_bodies_of_a_writer_who_is_about_to_commit_are_not_taken_for_left(
    postgres: pgjq.PostgresStorage, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pgjq.Client(postgres).create_queue("mail")
    _, message = stage(database, NAMES)
    with about_to_commit(database, message) as here:
        do(database, "select pgjq.drop_old_stages(0)")
        other, staged = stage(database, ["another"])
        monkeypatch.setattr(commit, "LARGE", 1_000)  # A small write, which looks for what was left in its queue.
        other.commit([staged])
        assert ask(database, BODIES) == [(len(NAMES) + 1,)]
        here.commit()
    assert sorted(ids(database)) == sorted([*NAMES, "another"])


def test_a_write_that_is_made_again_does_not_take_what_it_finds_for_its_own(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies that were left may be removed by others at any moment; while somebody is about to commit they stay."""
    names = NAMES[:200]
    one, message = die(database, names, writeId="w")
    monkeypatch.setattr(commit, "LARGE", 1_000_000)
    ((queue_id, left),) = ask(database, "select queue_id, created_at from pgjq.bulk_body")
    with psycopg.connect(database) as another, ThreadPoolExecutor() as pool:
        another.execute("select pg_advisory_xact_lock_shared(hashtext('pgjq.write'), %s)", (queue_id,))
        committing = pool.submit(one.commit, [message])
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        while not (committing.done() or ask(database, waiting)[0][0]):
            time.sleep(0.01)
        another.rollback()
        committing.result(60)
    assert (ids(database), counts(database, "w"), ask(database, BODIES)) == (names, (200, 0), [(200,)])
    assert ask(database, "select count(*) from pgjq.body where created_at = %s", left) == [(0,)]


def test_a_write_that_is_made_again_elsewhere_does_not_forget_what_it_left(database: str) -> None:
    die(database, NAMES, writeId="w")
    other, staged = stage(database, ["a"], writeId="w", queue="other")
    other.commit([staged])
    assert (ids(database), notes(database)) == (["a"], 1)
    do(database, "select pgjq.drop_old_stages()")  # As the maintenance of a reaper does.
    assert (ids(database), ask(database, BODIES), notes(database)) == (["a"], [(1,)], 0)
