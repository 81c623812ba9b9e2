"""Many at once: callers, claimers, processes, and few connections for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg

import pgjq
from pgjq import AsyncClient, Client, LeasePolicy, PostgresStorage
from pgjq.blocking import drive
from pgjq.outcome import Completed, Failed, Released
from pgjq.storage.base import Settlement


def test_fifty_threads_with_their_own_ids_share_four_connections(database: str) -> None:
    with Client(PostgresStorage(database, max_size=4)) as client, ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda n: client.enqueue("q", str(n), n), range(50)))
    assert {r.status for r in results} == {"queued"}


def test_fifty_tasks_with_their_own_ids_share_four_connections(database: str) -> None:
    async def fifty() -> list[str]:
        async with AsyncClient(PostgresStorage(database, max_size=4)) as client:
            results = await asyncio.gather(*(client.enqueue("q", str(n), n) for n in range(50)))
        return [r.status for r in results]

    assert set(asyncio.run(fifty())) == {"queued"}


def test_twenty_first_enqueues_of_a_new_queue_make_one_queue(postgres: PostgresStorage) -> None:
    client, together = Client(postgres), Barrier(10)

    def enqueue(n: int) -> str:
        together.wait()
        return client.enqueue("brand new", str(n), n).status

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(enqueue, range(10))) == {"queued"}
    assert client.get_queue_stats("brand new").queued == 10


def test_an_id_enqueued_completed_and_enqueued_again_by_many_runs_once_a_time(postgres: PostgresStorage) -> None:
    """Completion against deduplication: an id is taken, then answers with its result; it never runs beside itself."""
    client, ops = Client(postgres), postgres.operations("sync")
    for round_ in range(15):
        client.enqueue("q", f"id-{round_}", 0)
        (job,) = drive(ops.claim(["q"], worker="w", limit=10, policy=LeasePolicy()))
        together = Barrier(10)

        def act(n: int, job: object = job, together: Barrier = together, round_: int = round_) -> str | None:
            together.wait()
            if n == 0:
                return drive(ops.settle([Settlement(job.lease, Completed(b'"done"'))]))[0].state  # type: ignore[attr-defined]
            answer = client.enqueue("q", f"id-{round_}", n)
            assert answer.result == ("done" if answer.status == "completed" else None)
            return answer.status

        with ThreadPoolExecutor(10) as pool:
            answers = Counter(pool.map(act, range(10)))
        assert answers["completed"] + answers["duplicate"] == 10
        assert drive(ops.claim(["q"], worker="w", limit=10, policy=LeasePolicy())) == []


def test_overlapping_big_batches_do_not_deadlock(postgres: PostgresStorage) -> None:
    """Each is more than one chunk; half of them come in the opposite order."""
    client, ids = Client(postgres), [f"{n:05}" for n in range(6_000)]

    def enqueue(n: int) -> int:
        batch = ids if n % 2 else ids[::-1]
        return sum(r.status == "queued" for r in client.enqueue_many("q", [(i, None) for i in batch]))

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(enqueue, range(6))) == len(ids)
    assert client.get_queue_stats("q").queued == len(ids)


def test_an_operation_that_a_deadlock_ended_is_repeated(database: str, postgres: PostgresStorage) -> None:
    """The other transaction has the longer deadlock_timeout, so that PostgreSQL ends the operation."""
    client = Client(postgres)
    client.enqueue_many("q", [("a", None), ("b", None)])
    lock = "select from pgjq.job where seq = (select seq from pgjq.body where id = %s) for update"
    waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as watch:
        other.execute("set deadlock_timeout = '60s'")
        other.execute(lock, ["b"])
        with ThreadPoolExecutor(1) as pool:
            deleting = pool.submit(client.delete_many, "q", state="queued")
            while watch.execute(waits).fetchone() == (0,):
                assert not deleting.done()
            other.execute(lock, ["a"])
            other.commit()
            assert deleting.result(60) == 2


def test_a_big_batch_keeps_its_order_across_chunks(postgres: PostgresStorage) -> None:
    client = Client(postgres)
    ids = [f"{n * 7919 % 12_000:05}" for n in range(12_000)]
    client.enqueue_many("q", [(i, None) for i in ids])
    jobs = drive(postgres.operations("sync").claim(["q"], worker="w", limit=12_000, policy=LeasePolicy()))
    assert [job.lease.id for job in jobs] == ids


CLAIMER = """
import sys
import pgjq
from pgjq.blocking import drive
ops = pgjq.PostgresStorage(sys.argv[1]).operations("sync")
print("ready", flush=True)
sys.stdin.readline()
misses = 0
while misses < 3:
    jobs = drive(ops.claim(["q"], worker=sys.argv[2], limit=13, policy=pgjq.LeasePolicy()))
    misses += not jobs
    print(*(job.lease.id for job in jobs), sep="\\n", flush=True)
"""


def test_eight_processes_claim_every_job_once(database: str, postgres: PostgresStorage) -> None:
    jobs = 2_000
    Client(postgres).enqueue_many("q", [(str(n), n) for n in range(jobs)])
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, database, f"worker-{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(8)
    ]
    for claimer in claimers:
        assert claimer.stdout
        assert claimer.stdout.readline() == "ready\n"
    for claimer in claimers:  # All are told before the first one is waited for.
        assert claimer.stdin
        print("go", file=claimer.stdin, flush=True)
    outputs = [claimer.communicate()[0] for claimer in claimers]
    claimed = [job_id for output in outputs for job_id in output.split()]
    assert sorted(claimed, key=int) == [str(n) for n in range(jobs)]


def test_jobs_enqueued_in_one_transaction_keep_their_order(database: str, postgres: PostgresStorage) -> None:
    client = Client(postgres)
    with psycopg.connect(database) as connection:
        for n in (3, 1, 2):
            client.enqueue("q", str(n), n, connection=connection)
        assert client.get_queue_stats("q").total == 0
    jobs = drive(postgres.operations("sync").claim(["q"], worker="w", limit=9, policy=pgjq.LeasePolicy()))
    assert [job.lease.id for job in jobs] == ["3", "1", "2"]


def waits_for_a_lock(conninfo: str) -> bool:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        found = connection.execute(
            "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchall()
    return bool(found)


def test_a_retry_that_races_with_enqueueing_the_id_again_does_not_run_both(
    database: str, postgres: PostgresStorage
) -> None:
    client, ops = Client(postgres), postgres.operations("sync")
    client.enqueue("q", "a", "old")
    (job,) = drive(ops.claim(["q"], worker="w", limit=1, policy=LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Failed(pgjq.JobError("E", "boom")))]))
    with psycopg.connect(database) as caller, ThreadPoolExecutor(1) as pool:
        assert client.enqueue("q", "a", "new", connection=caller).status == "queued"
        retrying = pool.submit(client.retry, "q", "a")
        while not waits_for_a_lock(database):
            pass
        caller.commit()
        assert retrying.result().state == "queued"
    jobs = drive(ops.claim(["q"], worker="w", limit=9, policy=LeasePolicy()))
    assert [job.payload for job in jobs] == [b'"new"']


def test_giving_a_job_back_while_it_is_asked_to_end_ends_it(database: str, postgres: PostgresStorage) -> None:
    client, ops = Client(postgres), postgres.operations("sync")
    client.enqueue("q", "a", 1)
    (job,) = drive(ops.claim(["q"], worker="w", limit=1, policy=LeasePolicy()))
    with psycopg.connect(database) as rival, ThreadPoolExecutor(1) as pool:
        rival.execute("update pgjq.job set cancel_requested = true")
        settling = pool.submit(lambda: drive(ops.settle([Settlement(job.lease, Released())])))
        while not waits_for_a_lock(database):
            pass
        rival.commit()
        assert settling.result()[0].state == "cancelled"
    assert client.get_status("q", "a").state == "cancelled"  # type: ignore[union-attr]
