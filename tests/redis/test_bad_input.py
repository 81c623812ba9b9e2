"""Addresses, clients, names: each mistake is a clear error, and no name is mistaken for another."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
from redis.crc import key_slot

import pgjq
from pgjq.storage.redis.enqueue import MOST
from pgjq.storage.redis.keys import Keys
from pgjq.storage.redis.transport import Gate
from tests.redis_server import MAKES, Make, RedisServer
from tests.worker.conftest import Events

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a", "a:b", "b:c", "a:b:c", "{a}", "a}", "{a:b}:c", "%3A", "a%3Ab", "ü€😀", "a/b", "*", "[ab]", " "]


def free_port() -> int:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        return unheard.getsockname()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "http://localhost"}, "not a URL of Redis"),
        ({"url": "redis://localhost?socket_timeout=soon"}, "not a URL of Redis"),
        ({"url": "redis://localhost?no_such_option=1"}, "not a URL of Redis"),
        ({"url": "redis://localhost?protocol=3"}, "leave protocol out"),
        ({"url": "redis://localhost?max_connections=1"}, "leave max_connections out"),
        ({"url": 7}, "url must be a str"),
        ({"url": "redis://there", "host": "here"}, "not both"),
        ({"host": "here", "port": 0}, "port must be between"),
        ({"host": "here", "port": "6379"}, "port must be a whole number"),
        ({"prefix": ""}, "prefix must be"),
        ({"prefix": 1}, "prefix must be"),
        ({"client": object()}, "client must be a blocking client such as redis.Redis"),
        ({"client": redis.asyncio.Redis()}, "must be a blocking client"),
        ({"client": redis.Redis(decode_responses=True)}, "must not decode"),
        ({"client": redis.Redis(), "url": "redis://there"}, "not both"),
    ],
)
def test_what_cannot_be_a_storage_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pgjq.ValidationError, match=message):
        pgjq.RedisStorage(**arguments)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_server_that_is_not_there_is_unavailable(mode: str) -> None:
    with contextlib.closing(pgjq.RedisStorage(host="127.0.0.1", port=free_port())) as storage:
        call = enqueue if mode == "sync" else enqueue_async
        with pytest.raises(pgjq.StorageUnavailableError, match=r"refused|Connect call failed"):
            call(storage)


def enqueue(storage: pgjq.RedisStorage) -> None:
    pgjq.Client(storage).enqueue("q", "a", None)


def enqueue_async(storage: pgjq.RedisStorage) -> None:
    asyncio.run(pgjq.AsyncClient(storage).enqueue("q", "a", None))


def test_a_wrong_password_is_said_to_be(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        server.client().config_set("requirepass", "open sesame")
        for url in (server.url, server.url.replace("//", "//:wrong@")):
            with (
                contextlib.closing(pgjq.RedisStorage(url)) as storage,
                pytest.raises(pgjq.StorageError, match="check the credentials"),
            ):
                enqueue(storage)
        with contextlib.closing(pgjq.open_storage(server.url.replace("//", "//:open%20sesame@"))) as storage:
            assert pgjq.Client(storage).enqueue("q", "a", None).status == "queued"


@pytest.mark.parametrize(
    "options", ["/3?client_name=me", "?socket_timeout=20&health_check_interval=1", "?decode_responses=True", "unix"]
)
def test_a_url_may_have_options_or_be_a_socket(tmp_path: Path, options: str) -> None:
    socket_path = tmp_path / "redis.sock"
    with RedisServer(tmp_path, "--unixsocket", str(socket_path)) as server:
        url = f"unix://{socket_path}" if options == "unix" else server.url + options
        with contextlib.closing(pgjq.RedisStorage(url)) as storage:
            queue = pgjq.Queue("q", storage=storage, block_timeout=3600)
            queue.execute(lambda job: job.payload + 1)
            with queue:
                assert queue.enqueue_and_wait("a", 1, timeout=60) == 2


def test_a_server_that_is_too_old_is_refused() -> None:
    with pytest.raises(pgjq.StorageError, match=r"needs 6\.2"):
        Gate().check("6.0.20")
    Gate().check("7.2.4")


def test_a_url_says_which_storage() -> None:
    for url in ("redis://localhost:1/2", "rediss://user:secret@localhost:1"):
        with contextlib.closing(pgjq.open_storage(url)) as storage:
            assert isinstance(storage, pgjq.RedisStorage)


def test_a_batch_that_would_hold_everybody_up_is_refused(redis_storage: pgjq.RedisStorage) -> None:
    client = pgjq.Client(redis_storage)
    with pytest.raises(pgjq.ValidationError, match="100,000"):
        client.enqueue_many("q", ((None, None) for _ in range(MOST + 1)))
    assert client.get_queue_stats("q").total == 0


def test_a_big_batch_is_added_whole(redis_storage: pgjq.RedisStorage) -> None:
    client = pgjq.Client(redis_storage)
    jobs = [(str(n), n) for n in range(10_000)]
    assert {result.status for result in client.enqueue_many("q", jobs)} == {"queued"}
    assert {result.status for result in client.enqueue_many("q", jobs)} == {"duplicate"}
    assert client.get_queue_stats("q").ready == 10_000


def test_what_needs_a_transaction_is_refused_and_says_what_to_do(redis_storage: pgjq.RedisStorage) -> None:
    queue = pgjq.Queue("q", storage=redis_storage, max_attempts=1)
    with pytest.raises(pgjq.UnsupportedError, match="PostgresStorage"):
        queue.enqueue("a", None, connection=object())

    @queue.execute
    def work(job: pgjq.Job) -> None:
        with job.transaction():
            raise AssertionError

    failed = Events(queue, "failed")
    with queue:
        queue.enqueue("a", None)
        failed.wait()
    status = queue.get_status("a")
    assert status is not None
    assert status.error is not None
    assert "UnsupportedError" in status.error.type


def test_no_two_names_share_a_key_and_those_of_a_queue_share_a_slot() -> None:
    seen: set[bytes] = set()
    for prefix in NAMES:
        keys = Keys(prefix)
        common = {name.encode() for name in (*keys.workers, keys.events, keys.wake, keys.leader_key("r"))}
        assert seen.isdisjoint(common)
        seen |= common
        for queue in NAMES:
            mine = keys.of_queue(queue)
            assert len({key_slot(key) for key in mine}) == 1
            assert seen.isdisjoint(mine)
            seen |= set(mine)


def test_prefixes_and_queues_of_any_name_never_see_each_other(redis_url: str, redis_storage: pgjq.RedisStorage) -> None:
    del redis_storage  # It empties the server afterwards.
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(pgjq.Client(pgjq.RedisStorage(redis_url, prefix=name))) for name in ("a", "a:b", "{a}")
        ]
        for number, client in enumerate(clients):
            for queue in NAMES:
                assert client.enqueue(queue, "one", [number, queue]).status == "queued"
        for client in clients:
            assert sorted(job.queue for job in client.find_jobs()) == sorted(NAMES)
            assert all(client.cancel(queue, "one").status == "cancelled" for queue in NAMES)


def test_a_client_of_ones_own_serves_both_modes_and_stays_open(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as mine:
        mine.flushall()
        storage = pgjq.RedisStorage(client=mine, prefix="own")
        queue = pgjq.Queue("q", storage=storage, worker_id="ann")
        queue.execute(lambda job: job.payload + 1)
        done = Events(queue, "completed")
        with queue:
            queue.enqueue("a", 1)
            done.wait()
            assert queue.enqueue_and_wait("b", 2) == 3
        assert queue.get_result("a") == 2
        storage.close()
        with pytest.raises(pgjq.StorageError, match="closed"):
            queue.enqueue("c", 1)
        assert mine.ping()
        mine.flushall()


@pytest.mark.parametrize("make", MAKES)
def test_a_cluster_can_hold_it(tmp_path: Path, make: Make) -> None:
    """Each of two queues is on a server of its own, and a server refuses scripts whose keys are not in one slot."""
    with contextlib.ExitStack() as stack:
        first, second = form_cluster(stack, tmp_path, make)
        mine = stack.enter_context(redis.RedisCluster.from_url(first.url))
        stack.callback(mine.disconnect_connection_pools)  # Closing a cluster's client leaves these open.
        storage = stack.enter_context(contextlib.closing(pgjq.RedisStorage(client=mine)))
        live(storage)
        for server, queue in ((first, "one"), (second, "two")):
            assert server.client().exists(*storage.shared.keys.of_queue(queue))
        plain = stack.enter_context(contextlib.closing(pgjq.RedisStorage(first.url)))
        with pytest.raises(pgjq.StorageError, match=r"RedisStorage\(client=redis\.RedisCluster"):
            pgjq.Client(plain).enqueue("two", "a", None)


def form_cluster(stack: contextlib.ExitStack, directory: Path, make: Make) -> list[RedisServer]:
    """Start two servers that have half of the slots each, and wait until both know."""
    servers = []
    for number in range(2):
        (home := directory / str(number)).mkdir()
        servers.append(server := stack.enter_context(RedisServer(home, "--cluster-enabled", "yes", make=make)))
        server.client().execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        server.client().execute_command("CLUSTER", "ADDSLOTS", *range(number * 8192, (number + 1) * 8192))
    servers[0].client().execute_command("CLUSTER", "MEET", "127.0.0.1", servers[1].port)
    while any(server.client().cluster("INFO")["cluster_slots_ok"] != "16384" for server in servers):
        time.sleep(0.01)
    return servers


def live(storage: pgjq.RedisStorage) -> None:
    """Use every operation on two queues."""
    queues = [pgjq.Queue(name, storage=storage) for name in ("one", "two")]
    done = [Events(queue, "completed") for queue in queues]
    for queue in queues:
        queue.execute(lambda job: job.payload)
    worker = pgjq.Worker(*queues, concurrency=4)
    with pgjq.Client(storage) as client:
        worker.start()
        for name in ("one", "two"):
            client.enqueue_many(name, [(str(n), n) for n in range(20)])
        for heard in done:
            heard.wait(20)
        assert [client.enqueue_and_wait(name, "asked", name, timeout=60) for name in ("one", "two")] == ["one", "two"]
        worker.stop()
        assert {job.state for job in client.find_jobs(limit=100)} == {"completed"}
        assert client.get_workers() == []
        client.enqueue("one", "cancelled", None, delay=60)
        assert client.cancel("one", "cancelled").status == "cancelled"
        assert client.retry("one", "cancelled").state == "queued"
        assert client.delete_job("one", "cancelled")


@pytest.mark.parametrize("options", [{"singleton_seconds": 60}, {"debounce": 5}, {"dead_letter": "letters"}])
def test_job_options_that_need_definitions_are_refused(
    redis_storage: pgjq.RedisStorage, options: dict[str, Any]
) -> None:
    client, queue = pgjq.Client(redis_storage), pgjq.Queue("q", storage=redis_storage)
    for call in (
        lambda: client.enqueue("q", "a", None, **options),
        lambda: client.enqueue_many("q", [("b", None), pgjq.NewJob("a", None, **options)]),
        lambda: client.enqueue_and_wait("q", "a", None, **options),
        lambda: queue.enqueue("a", None, **options),
        lambda: queue.send(None, **options),
    ):
        with pytest.raises(pgjq.UnsupportedError, match="RedisStorage has no definitions"):
            call()
    assert client.find_jobs() == []


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("create_queue", {"policy": "singleton"}),
        ("create_queue", {}),
        ("update_queue", {"retry_limit": 1}),
        ("delete_queue", {}),
        ("get_queue", {}),
        ("get_queues", None),
        ("pause_queue", {}),
        ("resume_queue", {}),
        ("get_blocked_keys", {}),
        ("redrive", {}),
    ],
)
def test_calls_that_need_definitions_are_refused(
    redis_storage: pgjq.RedisStorage, call: str, arguments: dict[str, Any] | None
) -> None:
    asked = getattr(pgjq.Client(redis_storage), call)
    with pytest.raises(pgjq.UnsupportedError, match="RedisStorage has no definitions"):
        asked() if arguments is None else asked("q", **arguments)
