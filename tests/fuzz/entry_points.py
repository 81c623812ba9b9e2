"""Feed hostile values to every entry point.

Each function takes values and makes calls with them. A call may succeed or raise an error of pgjq; whatever else it
raises is a defect, and so is a storage that does not work afterwards. `ENTRY_POINTS` has what each storage is fuzzed
with, `PARSERS` what reads bytes and text without a storage.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import psycopg
from click.testing import CliRunner
from hypothesis import strategies as st

import pgjq
from pgjq import Client, FileStorage, LeasePolicy, PgjqError
from pgjq.blocking import drive
from pgjq.cli import main
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from pgjq.storage.file.journal_format import decode_line, encode_line
from pgjq.storage.redis.resp import INCOMPLETE, reply_reader
from tests.fuzz import values

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from pgjq.storage.base import Storage

SECRET = "s3cr3t"
SQL_CALLS = (
    "select pgjq.enqueue(%s::text, %s::jsonb)",
    "select pgjq.enqueue(%s::text, %s::jsonb, id => %s::text)",
    "select pgjq.enqueue(%s::text, %s::jsonb, headers => %s::jsonb)",
    "select pgjq.enqueue(%s::text, %s::jsonb, options => %s::jsonb)",
    "select pgjq.enqueue(%s::text, %s::jsonb, singleton_key => %s::text)",
    "select pgjq.create_schedule(%s::text, %s::text, %s::jsonb, cron => %s::text)",
    "select pgjq.scale(%s::text, %s::double precision)",
)
# Faults of the values, as PostgreSQL classes them; a fault of pgjq would be among the others.
INNOCENT = ("08", "21", "22", "23", "42883", "P0001", "0A", "54", "57014")


@contextlib.contextmanager
def only_own_errors() -> Generator[None]:
    """Let the errors of pgjq pass."""
    with contextlib.suppress(PgjqError):
        yield


def enqueue(storage: Storage, queue: Any, job_id: Any, payload: Any, options: dict[str, Any]) -> None:
    """Enqueue; what was accepted can be read, found, cancelled, retried and deleted."""
    client = Client(storage)
    with only_own_errors():
        found = client.enqueue(queue, job_id, payload, **options)
        if found.status == "queued":
            status = client.get_status(queue, found.id)
            assert status is not None, "a job that was acknowledged is not there"
            assert status.id == found.id
    with only_own_errors():
        client.enqueue_many(queue, [(job_id, payload), pgjq.NewJob(job_id, payload, **options)])
    for call in (
        client.get_status,
        client.get_result,
        client.get_attempts,
        client.cancel,
        client.retry,
        client.delete_job,
    ):
        with only_own_errors():
            call(queue, job_id)


def define(storage: Storage, queue: Any, options: dict[str, Any]) -> None:
    """Create, change and remove a queue."""
    client = Client(storage)
    for call in (client.create_queue, client.update_queue):
        with only_own_errors():
            call(queue, **options)
    for call in (
        client.get_queue,
        client.get_queue_stats,
        client.get_blocked_keys,
        client.pause_queue,
        client.delete_queue,
    ):
        with only_own_errors():
            call(queue)


def schedule(storage: Storage, name: Any, queue: Any, options: dict[str, Any]) -> None:
    """Create, change, look at and remove a schedule."""
    client = Client(storage)
    for call in (
        lambda: client.create_schedule(name, queue, **options),
        lambda: client.update_schedule(name, **options),
    ):
        with only_own_errors():
            call()
    for call in (client.get_schedule, client.preview_schedule, client.trigger_schedule, client.delete_schedule):
        with only_own_errors():
            call(name)


def find(storage: Storage, queue: Any, options: dict[str, Any]) -> None:
    """Search with filters of any kind."""
    with only_own_errors():
        Client(storage).find_jobs(queue, **options)


def notify(storage: Storage, channel: str, payload: str) -> None:
    """Send what any login can send to those who listen; subscribers and waiters go on."""
    assert isinstance(storage, pgjq.PostgresStorage)
    if "\0" in payload:
        return
    with psycopg.connect(storage.conninfo, autocommit=True) as connection, contextlib.suppress(psycopg.DataError):
        try:
            payload.encode()
        except UnicodeEncodeError:
            return
        if len(payload.encode()) < 8000:
            connection.execute("select pg_notify(%s, %s)", [channel, payload])


def call_sql(storage: Storage, statement: str, given: list[str | None]) -> None:
    """Call SQL functions as other programs do; an error is one of the values, not of pgjq's functions."""
    assert isinstance(storage, pgjq.PostgresStorage)
    parameters = [given[n % len(given)] for n in range(statement.count("%s"))]
    with psycopg.connect(storage.conninfo, autocommit=True) as connection:
        try:
            connection.execute(statement.encode(), parameters)
        except (psycopg.DataError, UnicodeEncodeError):
            return
        except psycopg.Error as error:
            if not (error.sqlstate or "XX").startswith(INNOCENT):
                raise


def command(storage: Storage, arguments: list[str], address: str) -> None:
    """Run the command line; it ends with 0, 1 or 2, and never with a traceback."""
    del storage
    if "migrate" in arguments or "worker" in arguments or "web" in arguments:
        return
    done = CliRunner(env={"PGJQ_URL": address}).invoke(main, arguments)
    assert done.exit_code in (0, 1, 2), f"{arguments}: {done.exit_code}"
    assert done.exception is None or isinstance(done.exception, SystemExit), f"{arguments}: {done.exception!r}"


json_texts = st.one_of(values.texts, values.anything.map(lambda value: json.dumps(value, default=str)))
given = st.lists(st.one_of(st.none(), json_texts), min_size=1, max_size=4)
channels = st.sampled_from(("pgjq.wake", "pgjq.events", "pgjq.results", "pgjq.cancel"))
messages = st.one_of(values.texts, json_texts, st.text(max_size=200))
ENTRY_POINTS: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "enqueue": (enqueue, (values.anything, values.anything, values.anything, values.job_options)),
    "enqueue text": (enqueue, (values.texts, values.texts, values.anything, values.job_options)),
    "define": (define, (st.one_of(values.texts, values.anything), values.queue_options)),
    "schedule": (schedule, (values.texts, values.texts, values.schedule_options)),
    "find": (
        find,
        (values.anything, st.dictionaries(st.sampled_from(("state", "created_before", "task")), values.anything)),
    ),
}
# Of PostgreSQL alone: what any login can do without pgjq.
SERVER_ENTRY_POINTS: dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]] = {
    "notify": (notify, (channels, messages)),
    "sql": (call_sql, (st.sampled_from(SQL_CALLS), given)),
}


def of_storage(name: str) -> dict[str, tuple[Callable[..., None], tuple[st.SearchStrategy[Any], ...]]]:
    """Return the entry points of a storage."""
    return ENTRY_POINTS | SERVER_ENTRY_POINTS if name == "postgres" else ENTRY_POINTS


def check_works(storage: Storage, number: int) -> None:
    """Put a job through: whatever came before, the storage does its work."""
    client, ops = Client(storage), storage.operations("sync")
    queue = f"sane-{number}"
    assert client.enqueue(queue, "one", {"n": number}).status == "queued"
    (claimed,) = drive(ops.claim([queue], worker="w", limit=9, policy=LeasePolicy()))
    drive(ops.settle([Settlement(claimed.lease, Completed(b"7"))]))
    assert client.get_result(queue, "one") == 7


def open_url(url: str) -> None:
    """Read a URL; an error does not tell its password."""
    spiced = url.replace("@", f":{SECRET}@", 1)
    if spiced.startswith(("embedded", "file")):
        return
    try:
        pgjq.open_storage(spiced).close()
    except PgjqError as error:
        if SECRET in f"{error!r}{error.__cause__!r}":
            raise AssertionError("the error tells the password") from error


def read_journal(directory: Path, lines: list[bytes]) -> None:
    """Open a directory whose journal has been damaged: it works, or an error of pgjq says so."""
    with only_own_errors(), contextlib.closing(FileStorage(directory)) as storage:
        Client(storage).enqueue("mail", "one", 1)
    with (directory / "journal").open("ab") as file:
        file.writelines(lines)
    with only_own_errors(), contextlib.closing(FileStorage(directory)) as storage:
        Client(storage).get_status("mail", "one")
        Client(storage).enqueue("mail", "two", 2)
        Client(storage).find_jobs()


def decode(line: bytes) -> None:
    """Read a line of a journal."""
    found = decode_line(line)
    assert found is None or encode_line(found)


def read_replies(pieces: list[bytes]) -> int:
    """Read what a Redis might send, and count the replies; nothing but a lost connection comes of nonsense."""
    from redis import exceptions

    reader, replies = reply_reader(), 0
    with contextlib.suppress(exceptions.ConnectionError):
        for piece in pieces:
            reader.feed(piece)
            while reader.gets() is not INCOMPLETE:
                replies += 1
    return replies


sealed = values.anything.map(lambda value: encode_line(json.loads(json.dumps(value, default=str, skipkeys=True))))
entries = st.fixed_dictionaries(
    {},
    optional={
        "at": st.one_of(values.texts, st.just("2026-11-18T00:00:00+00:00")),
        **{
            name: st.one_of(json_texts.map(str), st.lists(st.lists(values.texts, max_size=4), max_size=3))
            for name in ("jobs", "records", "queues", "schedules")
        },
    },
).map(encode_line)
lines = st.lists(st.one_of(st.binary(max_size=60), sealed, entries), max_size=4)
resp = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from(
            (
                b"*3\r\n",
                b"$5\r\n",
                b"$-1\r\n",
                b":1\r\n",
                b"+OK\r\n",
                b"-ERR x\r\n",
                b"*-1\r\n",
                b"$999999999\r\n",
                b"*1\r\n" * 50,
            )
        ),
    ),
    max_size=12,
)
