"""Jobs of other systems, made by the real packages, and moved to pgjq."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.blocking import drive

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture
def move_jobs() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "move_jobs.py"
    spec = importlib.util.spec_from_file_location("move_jobs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def waiting(client: pgjq.Client, queue: str) -> list[tuple[str | None, Any, bool]]:
    """List the jobs of a queue: task, payload, and whether they are due later."""
    ops: Any = client.storage.operations("sync")
    found = client.find_jobs(queue)
    contents = [pgjq.JsonSerde().deserialize(drive(ops.content(queue, job.id))[0]) for job in found]
    now = datetime.now(UTC)
    return [
        (job.task, content, bool(job.run_at and job.run_at > now)) for job, content in zip(found, contents, strict=True)
    ]


def test_from_procrastinate(move_jobs: ModuleType, own_database: str) -> None:
    procrastinate = pytest.importorskip(
        "procrastinate", reason="procrastinate is not installed: pip install procrastinate"
    )
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=own_database))

    @app.task(name="shop.receipt", queue="mail")
    def receipt(order: int) -> None: ...

    with app.open():
        app.schema_manager.apply_schema()
        receipt.defer(order=7)
        receipt.configure(lock="ann", schedule_in={"hours": 1}).defer(order=8)
    client = pgjq.Client(pgjq.PostgresStorage(own_database))
    with psycopg.connect(own_database) as connection:
        assert move_jobs.from_procrastinate(connection, client) == 2
        connection.rollback()
    assert waiting(client, "mail") == []
    with psycopg.connect(own_database) as connection:
        assert move_jobs.from_procrastinate(connection, client) == 2
        assert move_jobs.from_procrastinate(connection, client) == 0
    first, second = ({"task": "receipt", "args": [], "kwargs": {"order": order}} for order in (7, 8))
    assert waiting(client, "mail") == [("receipt", first, False), ("receipt", second, True)]
    assert client.find_jobs("mail")[1].singleton_key == "ann"
    client.close()


def test_from_pgboss(move_jobs: ModuleType, own_database: str) -> None:
    """pg-boss is no Python package: its table, with the columns that the move reads."""
    client = pgjq.Client(pgjq.PostgresStorage(own_database))
    with psycopg.connect(own_database) as connection:
        connection.execute(
            "create schema pgboss; create table pgboss.job (id uuid default gen_random_uuid(), name text, data jsonb,"
            " priority int default 0, state text, start_after timestamptz default now(), singleton_key text)"
        )
        connection.execute(
            "insert into pgboss.job (name, data, state) values"
            " ('mail', '{\"order\": 7}', 'created'), ('mail', '{\"order\": 8}', 'active')"
        )
        assert move_jobs.from_pgboss(connection, client) == 1
    assert waiting(client, "mail") == [(None, {"order": 7}, False)]
    client.close()


def test_from_rq(move_jobs: ModuleType, redis_url: str) -> None:
    rq = pytest.importorskip("rq", reason="rq is not installed: pip install rq")
    import redis

    client = pgjq.Client(pgjq.MemoryStorage())
    with redis.Redis.from_url(redis_url) as connection:
        queue = rq.Queue("mail", connection=connection)
        queue.enqueue("shop.receipt", 7, copy=True)
        queue.enqueue_in(timedelta(hours=1), "shop.receipt", 8)
        assert move_jobs.from_rq(queue, client) == 2
        assert move_jobs.from_rq(queue, client) == 0
        connection.flushall()
    assert waiting(client, "mail") == [
        ("receipt", {"task": "receipt", "args": [7], "kwargs": {"copy": True}}, False),
        ("receipt", {"task": "receipt", "args": [8], "kwargs": {}}, True),
    ]


def test_from_celery(move_jobs: ModuleType) -> None:
    celery = pytest.importorskip("celery", reason="celery is not installed: pip install celery")
    app = celery.Celery("shop", broker="memory://")

    @app.task(name="shop.receipt")
    def receipt(order: int, *, copy: bool = False) -> None: ...

    receipt.delay(7, copy=True)
    receipt.apply_async((8,), countdown=3600)
    client = pgjq.Client(pgjq.MemoryStorage())
    assert move_jobs.from_celery(app, "celery", client) == 2
    assert move_jobs.from_celery(app, "celery", client) == 0
    app.close()
    assert waiting(client, "celery") == [
        ("receipt", {"task": "receipt", "args": [7], "kwargs": {"copy": True}}, False),
        ("receipt", {"task": "receipt", "args": [8], "kwargs": {}}, True),
    ]
