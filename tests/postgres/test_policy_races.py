"""Policies and definitions where only a database can be asked: direct SQL, tables of a queue's own, races, plans."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgjq import (
    Client,
    JobError,
    JobNotFoundError,
    LeasePolicy,
    NewJob,
    PolicyError,
    PostgresStorage,
    QueueNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from pgjq.blocking import drive
from pgjq.outcome import Completed, Failed, Failing, Released
from pgjq.policy import POLICIES, Policy, PolicyName
from pgjq.storage.base import Settlement
from tests.postgres.row_reads import fetched

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pgjq.storage.base import Claimed

POLICY = LeasePolicy()
STATES = ["queued", "processing", "failing"]
SERIAL = [policy for policy in POLICIES if Policy(policy).is_serial]
SHOWN = ("transaction_isolation", "work_mem")
snapshots = pytest.mark.parametrize("level", ["repeatable read", "serializable"])
both = pytest.mark.parametrize("partition", [False, True], ids=["together", "partition"])


@pytest.fixture
def client(postgres: PostgresStorage) -> Client:
    return Client(postgres)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def claim(postgres: PostgresStorage, limit: int = 10, queue: str = "q") -> list[Claimed]:
    return drive(postgres.operations("sync").claim([queue], worker="w", limit=limit, policy=POLICY))


def settle(postgres: PostgresStorage, jobs: list[Claimed], outcome: Any) -> None:
    drive(postgres.operations("sync").settle([Settlement(job.lease, outcome) for job in jobs]))


def insert(connection: psycopg.Connection[Any], state: int, key: str | None, queue: str = "q") -> None:
    """Write a job directly into the tables, past all checks."""
    connection.execute(
        "insert into pgjq.job (seq, queue_id, run_at, ready, rank, max_attempts, result_ttl, delete_after, state,"
        " singleton_key) select nextval('pgjq.job_seq'), q.id, now(), %s = 0, 0, 3, 1, 1, %s, %s"
        " from pgjq.queue as q where q.name = %s",
        [state, state, key, queue],
    )


@both
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("key", [None, "k"])
def test_a_direct_insert_cannot_break_a_policy(
    client: Client, connection: psycopg.Connection[Any], policy: PolicyName, key: str | None, *, partition: bool
) -> None:
    """Two jobs of a key, in every pair of states: the database takes both where the policy has a place for both."""
    client.create_queue("q", policy=policy, partition=partition)
    for first, one in enumerate(STATES):
        for second, other in enumerate(STATES):
            connection.execute("delete from pgjq.job")
            needs_key = policy == "key_strict_fifo" and key is None
            slot = Policy(policy).slot
            free = slot(one) is None or slot(one) != slot(other)  # type: ignore[arg-type]
            if needs_key:
                with pytest.raises(psycopg.errors.CheckViolation):
                    insert(connection, first, key)
                continue
            insert(connection, first, key)
            insert(connection, second, "another")
            if free:
                insert(connection, second, key)
            else:
                with pytest.raises(psycopg.errors.UniqueViolation):
                    insert(connection, second, key)


@both
def test_a_direct_update_cannot_run_two_jobs_of_a_key(
    client: Client, connection: psycopg.Connection[Any], *, partition: bool
) -> None:
    client.create_queue("q", policy="singleton", partition=partition)
    client.enqueue_many("q", [("a", 1), ("b", 2)])
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("update pgjq.job set state = 1, ready = false")


def test_a_job_without_a_key_is_refused_by_sql_in_strict_order(
    client: Client, connection: psycopg.Connection[Any]
) -> None:
    client.create_queue("q", policy="key_strict_fifo")
    with pytest.raises(psycopg.errors.CheckViolation, match="needs a singleton_key"):
        connection.execute("select pgjq.enqueue('q', '1')")
    connection.execute("select pgjq.enqueue('q', '1', singleton_key => 'k')")
    assert client.get_queue_stats("q").total == 1


def test_a_refusal_leaves_the_callers_transaction_usable(client: Client, database: str) -> None:
    client.create_queue("q", policy="key_strict_fifo")
    client.create_queue("short", policy="short")
    with psycopg.connect(database) as caller:
        with pytest.raises(PolicyError):
            client.enqueue("q", "a", 1, connection=caller)
        with pytest.raises(QueueNotFoundError):
            client.enqueue("other", "a", 1, dead_letter="nobody's", connection=caller)
        with pytest.raises(PolicyError):
            client.enqueue_many("q", [(None, n) for n in range(200)], connection=caller)
        assert client.enqueue("short", "a", 1, connection=caller).status == "queued"
        assert client.enqueue("short", "b", 1, connection=caller).status == "duplicate"
        client.enqueue("q", "b", 1, singleton_key="k", connection=caller)
    assert [job.id for job in client.find_jobs()] == ["a", "b"]


@pytest.mark.parametrize("policy", POLICIES)
def test_many_jobs_with_made_ids_are_held_to_the_policy(client: Client, policy: PolicyName) -> None:
    client.create_queue("q", policy=policy, retry_limit=6)
    results = client.enqueue_many("q", [NewJob(None, n, singleton_key="k") for n in range(200)])
    limited = policy in ("short", "stately", "exclusive")
    assert Counter(r.status for r in results) == ({"queued": 1, "duplicate": 199} if limited else {"queued": 200})
    assert {job.max_attempts for job in client.find_jobs("q", limit=200)} == {7}


@pytest.mark.parametrize(
    ("definition", "expected"),
    [({}, (3, 7 * 86400)), ({"retry_limit": 6, "delete_after_seconds": 50}, (7, 50))],
    ids=["the defaults", "what the queue says"],
)
def test_every_way_in_leads_to_the_same_settings(
    client: Client, connection: psycopg.Connection[Any], definition: dict[str, Any], expected: tuple[int, int]
) -> None:
    client.create_queue("q", **definition)
    client.enqueue("q", "one", 1)
    client.enqueue_many("q", [("a", 1), ("b", 2)])
    client.enqueue_many("q", [(None, n) for n in range(100)])
    connection.execute("select pgjq.enqueue('q', '1')")
    found = connection.execute("select max_attempts, delete_after, count(*) from pgjq.job group by 1, 2").fetchall()
    assert found == [(*expected, 104)]


def test_a_queue_of_its_own_has_tables_of_its_own(client: Client, connection: psycopg.Connection[Any]) -> None:
    client.create_queue("q", policy="stately", partition=True)
    client.enqueue("q", "a", 1)
    client.enqueue("other", "b", 1)
    tables = "select relname from pg_class where relname ~ '^(attempt|body|job|done|progress)_[0-9]+$' order by 1"
    made = [name for (name,) in connection.execute(tables)]
    assert [name.partition("_")[0] for name in made] == ["attempt", "body", "done", "job", "progress"]
    row = connection.execute("select tableoid::regclass::text from pgjq.job where singleton_key is null order by 1")
    assert [name for (name,) in row] == [f"pgjq.{made[3]}", "pgjq.job_default"]
    counts = "select count(*) from pg_index where indrelid = %s::regclass"
    own, shared = (connection.execute(counts, [f"pgjq.{t}"]).fetchone() for t in (made[3], "job_default"))
    assert own == shared
    client.delete_queue("q")
    assert connection.execute(tables).fetchall() == []
    assert [job.id for job in client.find_jobs()] == ["b"]


def test_deleting_a_queue_waits_for_those_who_are_enqueueing_into_it(client: Client, database: str) -> None:
    """A job of a transaction that commits later is not left behind in a queue that is gone."""
    client.enqueue("q", "old", 1)
    with psycopg.connect(database) as caller, ThreadPoolExecutor(1) as pool:
        client.enqueue("q", "new", 1, connection=caller)
        deleting = pool.submit(client.delete_queue, "q")
        while not waits_for_a_lock(database):
            assert not deleting.done()
        caller.commit()
        deleting.result()
    assert list(client.find_jobs()) == []
    with psycopg.connect(database) as connection:
        assert connection.execute("select from pgjq.body union all select from pgjq.job").rowcount == 0


@contextmanager
def old_snapshot(database: str, level: str) -> Generator[psycopg.Connection[Any]]:
    """A transaction that sees nothing of what is committed from now on."""
    with psycopg.connect(database) as caller:
        caller.execute(f"set transaction isolation level {level}".encode())
        caller.execute("set local statement_timeout = '10s'")
        caller.execute("select 1 from pgjq.queue")
        yield caller
        caller.rollback()


@snapshots
def test_an_old_snapshot_cannot_enqueue_into_a_queue_that_is_gone(client: Client, database: str, level: str) -> None:
    client.enqueue("q", "old", 1)
    with old_snapshot(database, level) as caller:
        client.delete_queue("q")
        with pytest.raises(StorageUnavailableError, match="roll the transaction back and make it again"):
            client.enqueue("q", "new", 1, connection=caller)
    assert list(client.find_jobs()) == []


@snapshots
@pytest.mark.parametrize("policy", ["short", "stately", "exclusive"])
def test_a_place_that_an_old_snapshot_does_not_see_taken_is_a_failure_to_serialise(
    client: Client, database: str, policy: PolicyName, level: str
) -> None:
    client.create_queue("q", policy=policy)
    with old_snapshot(database, level) as caller:
        client.enqueue("q", "a", 1)
        with pytest.raises(StorageUnavailableError, match="roll the transaction back and make it again"):
            client.enqueue("q", "b", 1, connection=caller)
    assert client.enqueue("q", "b", 1).status == "duplicate"


@snapshots
@pytest.mark.parametrize("policy", SERIAL)
def test_a_handler_with_an_old_snapshot_lets_the_next_of_its_key_run(
    client: Client, postgres: PostgresStorage, policy: PolicyName, level: str
) -> None:
    """It does not see that the job behind it was put aside, and could not wake it."""
    client.create_queue("q", policy=policy)
    client.enqueue("q", "1", 1, singleton_key="k")
    (first,) = claim(postgres)
    client.enqueue("q", "2", 1, singleton_key="k")

    async def handle() -> None:
        async with postgres.operations("sync").job_transaction(first) as job_transaction:
            job_transaction.connection.execute(f"set transaction isolation level {level}".encode())
            job_transaction.connection.execute("select 1 from pgjq.queue")
            assert claim(postgres) == []
            await job_transaction.complete(b"1")

    drive(handle())
    assert [job.lease.id for job in claim(postgres)] == ["2"]


def test_statements_of_the_storage_see_what_was_committed_whatever_the_databases_default(
    client: Client, database: str
) -> None:
    client.enqueue("q", "1", 1)
    options = "-c default_transaction_isolation=serializable -c work_mem=1234kB"
    with closing(PostgresStorage(make_conninfo(database, options=options))) as strict:
        (job,) = claim(strict)

        async def look() -> list[Any]:
            async with strict.operations("sync").job_transaction(job) as job_transaction:
                rows = [job_transaction.connection.execute(f"show {n}".encode()).fetchone()[0] for n in SHOWN]
                await job_transaction.complete(b"1")
                return rows

        assert drive(look()) == ["read committed", "1234kB"]


@pytest.mark.parametrize("change", ["create_queue", "update_queue"])
def test_a_dead_letter_that_is_deleted_meanwhile_is_not_found(client: Client, database: str, change: str) -> None:
    client.create_queue("letters")
    client.create_queue("there")
    with psycopg.connect(database) as deleter, ThreadPoolExecutor(1) as pool:
        deleter.execute("select pgjq.delete_queue('letters')")
        name = "there" if change == "update_queue" else "new"
        changing = pool.submit(getattr(client, change), name, dead_letter="letters")
        while not waits_for_a_lock(database):
            assert not changing.done()
        deleter.commit()
        with pytest.raises(QueueNotFoundError, match="letters"):
            changing.result()
    assert [(queue.name, queue.dead_letter) for queue in client.get_queues()] == [("there", None)]


def test_deleting_a_queue_waits_for_those_who_retry_in_it(
    client: Client, postgres: PostgresStorage, connection: psycopg.Connection[Any], database: str
) -> None:
    client.enqueue("q", "a", 1)
    settle(postgres, claim(postgres), Failed(JobError("E", "boom")))
    with psycopg.connect(database) as caller, ThreadPoolExecutor(1) as pool:
        caller.execute("select pgjq.retry_jobs('q', '{a}')")
        deleting = pool.submit(client.delete_queue, "q")
        while not waits_for_a_lock(database):
            assert not deleting.done()
        caller.commit()
        deleting.result()
    assert connection.execute("select from pgjq.job union all select from pgjq.done").rowcount == 0


def test_a_queue_that_is_being_created_makes_no_producer_fail(client: Client, database: str) -> None:
    """It waits for tables that a producer uses, and the producer comes to wait for it: it is the one to give way."""
    with psycopg.connect(database) as caller, ThreadPoolExecutor(1) as pool:
        client.enqueue("a", "1", 1, connection=caller)
        creating = pool.submit(client.create_queue, "b", partition=True)
        while not waits_for_a_lock(database):
            assert not creating.done()
        assert client.enqueue("b", "1", 1, connection=caller).status == "queued"
        caller.commit()
        with pytest.raises(PolicyError, match="another partition"):
            creating.result()
    assert [job.queue for job in client.find_jobs()] == ["a", "b"]


def waits_for_a_lock(conninfo: str) -> bool:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        found = connection.execute(
            "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchall()
    return bool(found)


@both
@pytest.mark.parametrize("policy", SERIAL)
def test_an_open_transaction_of_a_producer_holds_up_nobody(
    client: Client, postgres: PostgresStorage, database: str, policy: PolicyName, *, partition: bool
) -> None:
    client.create_queue("q", policy=policy, partition=partition)
    client.enqueue("q", "1", 1, singleton_key="k")
    running = claim(postgres)
    with psycopg.connect(database) as caller:
        client.enqueue("q", "2", 1, singleton_key="k", connection=caller)
        assert claim(postgres) == []
        settle(postgres, running, Completed(b"1"))
        client.enqueue("q", "3", 1, singleton_key="l")
        assert [job.lease.id for job in claim(postgres)] == ["3"]
        caller.commit()
    assert [job.lease.id for job in claim(postgres)] == ["2"]


@pytest.mark.parametrize("policy", ["short", "stately"])
def test_a_worker_gives_back_what_an_open_transaction_has_the_place_of(
    client: Client, postgres: PostgresStorage, database: str, policy: PolicyName
) -> None:
    client.create_queue("q", policy=policy)
    client.enqueue("q", "1", 1)
    running = claim(postgres)
    with psycopg.connect(database) as caller:
        client.enqueue("q", "2", 1, connection=caller)
        settle(postgres, running, Released())
        assert [(job.id, job.state, job.attempts) for job in client.find_jobs()] == [("1", "failing", 0)]
        caller.commit()
    assert client.get_queue_stats("q").ready == 1


def test_jobs_that_a_transaction_enqueues_are_in_strict_order(
    client: Client, postgres: PostgresStorage, database: str
) -> None:
    client.create_queue("q", policy="key_strict_fifo")
    with psycopg.connect(database) as caller:
        for n in (3, 1, 2):
            client.enqueue("q", str(n), n, singleton_key="k", priority=n, connection=caller)
    ran: list[str] = []
    while jobs := claim(postgres):
        ran += [job.lease.id for job in jobs]
        settle(postgres, jobs, Completed(b"1"))
    assert ran == ["3", "1", "2"]


def test_two_that_leave_a_line_at_once_wake_the_third(client: Client, postgres: PostgresStorage, database: str) -> None:
    """Each of them sees the other one still standing there."""
    client.create_queue("q", policy="key_strict_fifo")
    client.enqueue_many("q", [NewJob(f"{n}", 1, singleton_key="k") for n in (1, 2, 3)])
    first = claim(postgres)
    with psycopg.connect(database) as leaving, ThreadPoolExecutor(1) as pool:
        leaving.execute("select pgjq.cancel_jobs('q', '{2}')")
        settling = pool.submit(settle, postgres, first, Completed(b"1"))
        while not waits_for_a_lock(database):
            assert not settling.done()
        leaving.commit()
        settling.result()
    assert [job.lease.id for job in claim(postgres)] == ["3"]


GOING: dict[str, tuple[PolicyName, str]] = {
    "completes": ("singleton", "select pgjq.settle(array[{q}], array[{seq}], array[1], null, null, null, null)"),
    "completes in strict order": (
        "key_strict_fifo",
        "select pgjq.settle(array[{q}], array[{seq}], array[1], null, null, null, null)",
    ),
    "is given back": (
        "stately",
        "select pgjq.settle(array[{q}], array[{seq}], array[1], array[2]::smallint[], null, '{{x}}', array[900])",
    ),
    "is deleted after it failed": ("key_strict_fifo", "select pgjq.delete_jobs('q', '{{1}}')"),
    "is cancelled": ("key_strict_fifo", "select pgjq.cancel_jobs('q', '{{1}}')"),
}


@both
@pytest.mark.parametrize("how", GOING)
def test_a_job_that_is_claimed_while_the_one_before_it_goes_is_not_held_for_ever(
    client: Client, postgres: PostgresStorage, database: str, how: str, *, partition: bool
) -> None:
    """The claim sees what is in the way, but not that it is going: the other transaction has not committed."""
    policy, statement = GOING[how]
    client.create_queue("q", policy=policy, partition=partition)
    client.enqueue("q", "1", 1, singleton_key="k", delay=900 if "cancel" in how else None)
    first = claim(postgres)
    if "failed" in how:
        settle(postgres, first, Failed(JobError("E", "boom")))
    client.enqueue("q", "2", 1, singleton_key="k")
    with psycopg.connect(database) as going:
        row = going.execute("select queue_id, seq from pgjq.body where id = '1'").fetchone()
        assert row is not None
        going.execute(statement.format(q=row[0], seq=row[1]).encode())
        assert claim(postgres) == []
        going.commit()
    assert [job.lease.id for job in claim(postgres)] == ["2"]


@both
@pytest.mark.parametrize("policy", SERIAL)
def test_whatever_happens_at_once_no_job_is_forgotten_in_its_line(
    client: Client,
    postgres: PostgresStorage,
    connection: psycopg.Connection[Any],
    policy: PolicyName,
    *,
    partition: bool,
) -> None:
    """Producers, claimers, and people who cancel, delete and retry, all at once; then everything is drained."""
    client.create_queue("q", policy=policy, partition=partition)
    crowd = Crowd(client, postgres)
    crowd.run([crowd.produce, *[crowd.consume] * 5, crowd.meddle, crowd.meddle], 1.2)
    assert crowd.broken == []
    drain(client, postgres, connection)
    assert connection.execute("select seq, state, ready, blocked, run_at, singleton_key from pgjq.job").fetchall() == []


class Crowd:
    """Threads that do something again and again until they are told to stop."""

    def __init__(self, client: Client, postgres: PostgresStorage) -> None:
        self.client = client
        self.postgres = postgres
        self.broken: list[Exception] = []
        self.stop = threading.Event()
        self.random = random.Random()  # noqa: S311

    def run(self, acts: list[Callable[[], None]], seconds: float) -> None:
        threads = [threading.Thread(target=self._again, args=[act]) for act in acts]
        for thread in threads:
            thread.start()
        self.stop.wait(seconds)
        self.stop.set()
        for thread in threads:
            thread.join()

    def _again(self, act: Callable[[], None]) -> None:
        try:
            while not self.stop.is_set():
                act()
        except Exception as error:  # noqa: BLE001
            self.broken.append(error)

    def produce(self) -> None:
        choice = self.random.choice
        jobs = [NewJob(None, 1, singleton_key=choice("abc"), priority=self.random.randrange(3)) for _ in range(3)]
        self.client.enqueue_many("q", jobs)

    def consume(self) -> None:
        jobs = claim(self.postgres, self.random.randrange(1, 5))
        boom = JobError("E", "boom")
        outcomes = [Completed(), Completed(), Failing(boom), Failing(boom, 0.005), Released(), Failed(boom)]
        settlements = [Settlement(job.lease, self.random.choice(outcomes)) for job in jobs]
        while not self._settles(settlements):
            pass

    def _settles(self, settlements: list[Settlement]) -> bool:
        """Return whether no row was locked for too long; if one was, a worker's settler sends the outcomes again."""
        try:
            drive(self.postgres.operations("sync").settle(settlements))
        except StorageError as error:
            if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise
            return False
        return True

    def meddle(self) -> None:
        state = self.random.choice(["queued", "failing", "failed"])
        for job in self.client.find_jobs("q", limit=5, state=state):  # type: ignore[arg-type]
            with suppress(PolicyError, JobNotFoundError):
                self.random.choice([self.client.cancel, self.client.delete_job, self.client.retry])("q", job.id)


def drain(client: Client, postgres: PostgresStorage, connection: psycopg.Connection[Any]) -> None:
    """Run everything that can run; in strict order, failed jobs are deleted to let those behind them go."""
    connection.execute("update pgjq.job set run_at = now() where state <> 1")
    idle = 0
    while idle < 3:
        client.delete_many("q", state="failed")
        jobs = claim(postgres, 100)
        settle(postgres, jobs, Completed())
        idle = 0 if jobs else idle + 1


@pytest.mark.parametrize("policy", ["singleton", "key_strict_fifo"])
def test_a_line_whose_head_was_deleted_by_hand_goes_on_after_the_next_round(
    client: Client, postgres: PostgresStorage, connection: psycopg.Connection[Any], policy: PolicyName
) -> None:
    client.create_queue("q", policy=policy)
    client.enqueue_many("q", [NewJob(f"{n}", 1, singleton_key="k") for n in (1, 2)])
    assert [job.lease.id for job in claim(postgres)] == ["1"]
    drive(postgres.operations("sync").observe())  # type: ignore[attr-defined]
    assert claim(postgres) == []
    connection.execute("delete from pgjq.job where state = 1")
    assert claim(postgres) == []
    drive(postgres.operations("sync").observe())  # type: ignore[attr-defined]
    assert [job.lease.id for job in claim(postgres)] == ["2"]


def test_a_claim_beside_many_blocked_keys_reads_what_it_takes(
    client: Client, postgres: PostgresStorage, connection: psycopg.Connection[Any]
) -> None:
    client.create_queue("q", policy="key_strict_fifo")
    client.enqueue_many("q", [NewJob(f"{n}-{key}", 1, singleton_key=f"{key}") for n in (1, 2) for key in range(600)])
    settle(postgres, claim(postgres, 600), Failed(JobError("E", "boom")))
    assert claim(postgres, 10) == []
    assert len(client.get_blocked_keys("q")) == 600
    client.enqueue("q", "free", 1, singleton_key="free")
    # If autovacuum came by between two tests, when all rows had gone and their pages had not, PostgreSQL takes the
    # tables for empty from then on, and reads 600 rows as if they were one.
    connection.execute("analyze pgjq.job, pgjq.body, pgjq.done")
    with connection.transaction(force_rollback=True):
        before = fetched(connection)
        row = connection.execute("select id from pgjq.claim('{q}', 1, 10, 30, 900, null, false)").fetchall()
        assert row == [("free",)]
        assert fetched(connection) - before <= 20
