"""Roles: every cell of the table in docs/roles.md, tried by a login of each role with the client's own operations."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.migrate import downgrade
from pgjq.outcome import Completed, Failed, Released
from pgjq.spark.options import read_options
from pgjq.spark.source import PgjqDataSource
from pgjq.spark.writer import read_written
from pgjq.storage.base import Settlement
from pgjq.storage.workers import Registration
from tests.cli.run_command import started
from tests.postgres.conftest import ROLES, TABLES, ByRole, execute
from tests.spark.write_without_spark import rows, stages
from tests.spark.write_without_spark import writer as spark_writer

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
QUESTIONS = sorted(path.read_text(encoding="utf-8") for path in (ROOT / "sql/monitoring").glob("*.sql"))
TABLE = re.findall(r"^\| (.+?) \|(.*)\|$", (ROOT / "docs/roles.md").read_text(encoding="utf-8"), re.MULTILINE)
ALLOWED = {what: [cell.strip() == "yes" for cell in cells.split("|")] for what, cells in TABLE[1:]}
POLICY = pgjq.LeasePolicy()
ERROR = pgjq.JobError("ValueError", "no", "a secret traceback")
SHOP = """
import os, pgjq
mail = pgjq.Queue("mail", storage=pgjq.PostgresStorage(os.environ["PGJQ_URL"]))
mail.execute(lambda job: job.payload)
"""


def run_one(by_role: ByRole, queue: str, outcome: Any) -> None:
    """Run the next job of a queue as its owner would."""
    ops = by_role.storages["owner"].operations("sync")
    (job,) = drive(ops.claim([queue], worker="w", limit=1, policy=POLICY))
    drive(ops.settle([Settlement(job.lease, outcome)]))


def ended(
    by_role: ByRole, outcome: Any, *, policy: Any = "standard", dead_letter: str | None = None
) -> tuple[str, str]:
    """Return queue and id of a job that has ended."""
    queue, job_id = uuid4().hex, uuid4().hex
    by_role.client.create_queue(queue, policy=policy, dead_letter=dead_letter, retry_limit=0)
    by_role.client.enqueue(queue, job_id, "a secret payload", singleton_key="k")
    run_one(by_role, queue, outcome)
    return queue, job_id


def enqueue(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    client, queue = pgjq.Client(storage), uuid4().hex
    assert client.enqueue(queue, "one", 1, priority=3, delay=1, dead_letter=None).status == "queued"
    assert client.enqueue(queue, "one", 1).status == "duplicate"
    assert client.enqueue(queue, "keyed", 1, singleton_key="k", singleton_seconds=60).status == "queued"
    pgjq.Queue(queue, storage=storage).send(1)


def enqueue_many(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    client, queue = pgjq.Client(storage), uuid4().hex
    by_role.client.create_queue(queue, partition=True)
    client.enqueue_many(queue, [(None, n) for n in range(6_000)])
    client.enqueue_many(queue, [(str(n), n) for n in range(120)])
    assert by_role.client.get_queue_stats(queue).ready == 6_120


def enqueue_in_a_transaction(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue = uuid4().hex
    with psycopg.connect(storage.conninfo) as connection:
        pgjq.Client(storage).enqueue(queue, "one", 1, connection=connection)
        assert by_role.client.get_status(queue, "one") is None
    assert by_role.client.get_status(queue, "one") is not None


def enqueue_from_sql(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    found = execute(storage.conninfo, "select status from pgjq.enqueue('from sql', '1')")
    assert found == [("queued",)]


def enqueue_and_wait(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue = uuid4().hex
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(pgjq.Client(storage).enqueue_and_wait, queue, "one", 1, timeout=30)
        while not answer.done() and by_role.client.get_status(queue, "one") is None:
            pass
        if not answer.done():
            run_one(by_role, queue, Completed(b"7"))
        assert answer.result() == 7
    # An existing job of any producer is waited for as well.
    by_role.client.enqueue(queue, "two", 1)
    with pytest.raises(pgjq.TimeoutError):
        pgjq.Client(storage).enqueue_and_wait(queue, "two", 1, timeout=0.01)


def ask(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue, job_id = ended(by_role, Completed(b"7"))
    client = pgjq.Client(storage)
    found = client.get_status(queue, job_id)
    assert found is not None
    assert found.state == "completed"
    assert client.get_result(queue, job_id) == 7
    assert client.get_statuses(queue, [job_id, "another"]).keys() == {job_id}
    assert [run.outcome for run in client.get_attempts(queue, job_id)] == ["completed"]


def work(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue, ops = uuid4().hex, storage.operations("sync")
    by_role.client.create_queue(queue + "dead")
    by_role.client.create_queue(queue, partition=True, dead_letter=queue + "dead")
    by_role.client.enqueue_many(queue, [(str(n), n) for n in range(3)])
    assert drive(ops.wait_for_work([queue], 1))
    jobs = drive(ops.claim([queue], worker="w", limit=9, policy=POLICY))
    outcomes = (Completed(b"1"), Failed(ERROR), Released())
    settled = drive(ops.settle([Settlement(job.lease, end) for job, end in zip(jobs, outcomes, strict=True)]))
    assert [end.state for end in settled] == ["completed", "failed", "queued"]
    assert by_role.client.get_queue_stats(queue + "dead").ready == 1


def keep_alive(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue, ops = uuid4().hex, storage.operations("sync")
    by_role.client.enqueue(queue, "one", 1)
    (job,) = drive(by_role.storages["owner"].operations("sync").claim([queue], worker="w", limit=1, policy=POLICY))
    assert drive(ops.heartbeat([job.lease])).lost == []
    assert drive(ops.save_checkpoint(job.lease, b"1"))
    assert drive(ops.save_checkpoint(job.lease, b"2"))


def reap(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue, policy = uuid4().hex, pgjq.LeasePolicy(lease=0.001, heartbeat=None)
    by_role.client.enqueue(queue, "one", 1)
    drive(by_role.storages["owner"].operations("sync").claim([queue], worker="w", limit=1, policy=policy))
    while not [job for job in drive(storage.operations("sync").reap()) if job.queue == queue]:
        pass


def keep_order(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    ops: Any = storage.operations("sync")
    drive(ops.prune())
    drive(ops.observe(with_endings=True))


def list_workers(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue = uuid4().hex
    by_role.client.enqueue(queue, "one", 1)
    ops = by_role.storages["owner"].operations("sync")
    drive(ops.worker_seen(Registration(queue, queue, (queue,), 10.0)))
    drive(ops.claim([queue], worker=queue, limit=1, policy=POLICY))
    assert [worker.running for worker in pgjq.Client(storage).get_workers() if worker.id == queue] == [1]


def register(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    ops, registration = storage.operations("sync"), Registration(uuid4().hex, "w", ("q",), 10.0)
    for _ in range(2):
        drive(ops.worker_seen(registration))
    drive(ops.worker_stopped(registration))


def watch(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    for question in QUESTIONS:
        execute(storage.conninfo, question)


def look_around(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue, _ = ended(by_role, Failed(ERROR), policy="key_strict_fifo")
    client = pgjq.Client(storage)
    assert client.get_queue(queue) in client.get_queues()
    assert client.get_queue_stats(queue).failed == 1
    assert client.get_blocked_keys(queue) == ["k"]


def find(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    pgjq.Client(storage).find_jobs()


def read_secrets(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    columns = {"pgjq.body": ("payload", "source"), "pgjq.done": ("result", "error"), "pgjq.jobs": ("result", "error")}
    columns |= {"pgjq.progress": ("checkpoint", "error"), "pgjq.attempt": ("error",)}
    secrets = [(column, table) for table, hidden in columns.items() for column in hidden]
    all_or_none([refuses(storage, "select {} from {}", column, table) for column, table in secrets])


def manage(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    client, (queue, job_id) = pgjq.Client(storage), ended(by_role, Failed(ERROR))
    refused = [
        raises(lambda: client.retry(queue, job_id)),
        raises(lambda: client.reschedule(queue, job_id, priority=1)),
        raises(lambda: client.release(queue, job_id)),
        raises(lambda: client.cancel(queue, job_id, active=True)),
        raises(lambda: client.delete_job(queue, job_id)),
        raises(lambda: client.redrive(queue)),
    ]
    all_or_none(refused)


def define(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    client, queue = pgjq.Client(storage), uuid4().hex
    by_role.client.create_queue(queue, partition=True)
    refused = [
        raises(lambda: client.create_queue(uuid4().hex, partition=True)),
        raises(lambda: client.update_queue(queue, retry_limit=7)),
        raises(lambda: client.delete_queue(queue)),
    ]
    all_or_none(refused)


def pause(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    client, queue = pgjq.Client(storage), uuid4().hex
    by_role.client.create_queue(queue)
    all_or_none([raises(lambda: client.pause_queue(queue)), raises(lambda: client.resume_queue(queue))])


def write_from_spark(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue, conninfo = uuid4().hex, storage.conninfo
    one = spark_writer(conninfo, queue=queue, writeId=queue)
    one.commit([one.write(iter([rows(["a", "b", "a"])]))])
    written = read_written(read_options({"url": conninfo}), queue)
    assert written is not None
    assert (written.jobs, written.duplicates, by_role.client.get_queue_stats(queue).ready) == (2, 1, 2)
    failed = spark_writer(conninfo, queue=queue)
    failed.abort([failed.write(iter([rows(["c"])]))])
    assert stages(by_role.owner) == []


def read_from_spark(by_role: ByRole, storage: pgjq.PostgresStorage) -> None:
    queue, job_id = ended(by_role, Completed(b"7"))
    source: Any = PgjqDataSource({"url": storage.conninfo, "columns": "id,result", "queue": queue})
    reader = source.reader(source.schema())
    found = [row for span in reader.partitions() for batch in reader.read(span) for row in batch.to_pylist()]
    assert found == [{"id": job_id, "result": "7"}]


def write(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    refused = [refuses(storage, "delete from {} where false", table) for table in TABLES[:-1]]
    refused += [refuses(storage, "update {} set queue_id = 0 where false", table) for table in TABLES[2:]]
    rows = "insert into {} (seq, queue_id) select 1, 2 where false"
    refused += [refuses(storage, rows, table) for table in ("pgjq.body", "pgjq.job", "pgjq.done")]
    all_or_none(refused)


def change_the_schema(_: ByRole, storage: pgjq.PostgresStorage) -> None:
    refused = [refuses(storage, "truncate {}", table) for table in TABLES]
    refused.append(refuses(storage, "drop table pgjq.queue"))
    refused.append(refuses(storage, "alter table pgjq.job add mine text"))
    refused.append(refuses(storage, "create function pgjq.mine() returns int language sql return 1"))
    refused.append(refuses(storage, "create or replace view pgjq.jobs as select 1"))
    refused.append(refuses(storage, "update pgjq.alembic_version set version_num = 'x'"))
    refused.append(raises(lambda: downgrade(storage.conninfo)))
    all_or_none(refused)


def refuses(storage: pgjq.PostgresStorage, statement: str, *names: str) -> str | None:
    try:
        execute(storage.conninfo, statement, *names)
    except psycopg.errors.InsufficientPrivilege as error:
        return str(error)
    return None


def raises(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except pgjq.StorageError as error:
        return str(error)
    return None


def all_or_none(refused: list[str | None]) -> None:
    """A cell says yes or nothing of all that is named in it."""
    reasons = [reason for reason in refused if reason]
    assert len(reasons) in (0, len(refused)), refused
    if reasons:
        raise pgjq.StorageError(reasons[0])


OPERATIONS: dict[str, Callable[[ByRole, pgjq.PostgresStorage], None]] = {
    "`enqueue`, `send`": enqueue,
    "`enqueue_many`": enqueue_many,
    "`enqueue` inside a transaction of one's own": enqueue_in_a_transaction,
    "`pgjq.enqueue(…)` from SQL": enqueue_from_sql,
    "`enqueue_and_wait`": enqueue_and_wait,
    "`get_status`, `get_result`, `get_attempts` of a job whose queue and id one knows": ask,
    "claim, complete, fail, release": work,
    "heartbeat, checkpoint": keep_alive,
    "reap": reap,
    "prune, count queues": keep_order,
    "register as a worker, be seen, stop": register,
    "`get_workers`, which health checks ask for": list_workers,
    "the views of `sql/monitoring`": watch,
    "`get_queues`, `get_queue`, `get_queue_stats`, `get_blocked_keys`": look_around,
    "`find_jobs`": find,
    "read payloads, results or whole errors out of the tables": read_secrets,
    "`cancel`, `retry`, `release`, `reschedule`, `delete_job`, `redrive`": manage,
    "`create_queue`, `update_queue`, `delete_queue`": define,
    "`pause_queue`, `resume_queue`": pause,
    "write a data frame or a stream from Spark": write_from_spark,
    "read history, jobs and queues with Spark": read_from_spark,
    "write to the tables by hand": write,
    "change the schema, migrate": change_the_schema,
}


def test_the_table_in_the_documents_is_about_these_operations() -> None:
    assert ALLOWED.keys() == OPERATIONS.keys()
    assert {len(cells) for cells in ALLOWED.values()} == {len(ROLES)}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("what", OPERATIONS)
def test_a_role_may_do_what_the_documents_say(what: str, role: str, by_role: ByRole) -> None:
    storage = by_role.storages[role]
    if ALLOWED[what][ROLES.index(role)]:
        OPERATIONS[what](by_role, storage)
    else:
        with pytest.raises(
            (pgjq.StorageError, psycopg.errors.InsufficientPrivilege), match=r"permission denied|owner of"
        ):
            OPERATIONS[what](by_role, storage)


def test_what_is_not_allowed_is_an_error_that_names_the_permission(by_role: ByRole) -> None:
    with pytest.raises(pgjq.StorageError, match=r"^permission denied for function cancel_jobs: .*docs/roles\.md$"):
        pgjq.Client(by_role.storages["producer"]).cancel("mail", "one")


def test_a_worker_of_that_role_runs_jobs_from_a_producer_of_that_role(by_role: ByRole) -> None:
    name, errors = uuid4().hex, list[object]()
    queue = pgjq.Queue(name, storage=by_role.storages["worker"], lease_policy=pgjq.LeasePolicy(reap_interval=0.05))

    @queue.execute
    def handle(job: pgjq.Job) -> None:
        if job.attempts == 1:
            job.save_checkpoint("seen")
            job.heartbeat()
            raise pgjq.Retry(delay=0)
        queue.send(1, delay=60)
        with job.transaction():
            job.result = job.checkpoint

    queue.on("error", errors.append)
    with (
        queue,
        pgjq.Reaper(storage=by_role.storages["worker"], leader_election=pgjq.LeaderElection(enabled=True)) as reaper,
    ):
        reaper.on("error", errors.append)
        assert pgjq.Client(by_role.storages["producer"]).enqueue_and_wait(name, None, 1, timeout=30) == "seen"
    assert errors == []
    assert by_role.client.get_queue_stats(name).deferred == 1


def test_the_commands_that_go_on_need_no_more_than_that_role(by_role: ByRole, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    url = by_role.storages["worker"].conninfo
    with (
        started("worker", "shop:mail", "--processes", "2", url=url, directory=tmp_path) as worker,
        started("reaper", "--leader-election", url=url, directory=tmp_path) as reaper,
    ):
        worker.wait_for(" serves mail")
        reaper.wait_for("leadership acquired")
        assert pgjq.Client(by_role.storages["producer"]).enqueue_and_wait("mail", None, 7, timeout=30) == 7
        assert (worker.end(), reaper.end()) == (0, 0)
