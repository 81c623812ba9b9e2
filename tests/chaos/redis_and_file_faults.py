"""Faults of a Redis server, and of the directory of a FileStorage."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from pgjq.storage.redis.scripts import script
from tests.chaos.faults import System, kind
from tests.chaos.servers import FileServers, RedisServers
from tests.chaos.spaces import MAIN
from tests.worker.proxy import Trap

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

    from tests.redis_server import RedisServer

GARBAGE = (b"", b"not JSON", b"7", b"[]", b'{"a": 1}', b"[[1]]", b"\xff\xfe", b'[{"at": 1e300}]')


def _server(system: System) -> RedisServer:
    assert isinstance(system.servers, RedisServers)
    return system.servers.server


@kind("server", "redis")
def restart_redis(system: System, _chance: random.Random) -> Generator[None]:
    """Kill Redis with SIGKILL, and start it again with what it wrote down."""
    _server(system).restart()
    yield


@kind("server", "redis", hold=(0.5, 3.0))
def stop_redis(system: System, _chance: random.Random) -> Generator[None]:
    """Kill Redis with SIGKILL, and start it again after some seconds."""
    _server(system).kill()
    yield
    _server(system).start()


@kind("server", "redis", hold=(0.5, 4.0))
def freeze_redis(system: System, _chance: random.Random) -> Generator[None]:
    """Stop Redis with SIGSTOP for some seconds."""
    _server(system).pause()
    yield
    _server(system).resume()


@kind("server", "redis", weight=2)
def kill_redis_clients(system: System, chance: random.Random) -> Generator[None]:
    """Have Redis close its connections: those that listen, the others, or all."""
    client = _server(system).client()
    for kinds in chance.choice([("pubsub",), ("normal",), ("normal", "pubsub")]):
        client.execute_command("CLIENT", "KILL", "TYPE", kinds, "SKIPME", "yes")
    client.close()
    yield


@kind("server", "redis", weight=2)
def publish_malformed_messages(system: System, _chance: random.Random) -> Generator[None]:
    """Publish messages that cannot be read, on every channel that has a subscriber."""
    client = _server(system).client()
    for channel in client.pubsub_channels():
        for message in GARBAGE:
            client.publish(channel, message)
    client.close()
    yield


@kind("server", "redis", hold=(0.0, 0.1))
def forget_redis_scripts(system: System, _chance: random.Random) -> Generator[None]:
    """Have Redis forget every script that was loaded."""
    client = _server(system).client()
    client.script_flush()
    client.close()
    yield


@kind("server", "redis", hold=(0.3, 2.0))
def fill_redis(system: System, _chance: random.Random) -> Generator[None]:
    """Leave Redis no memory for another write."""
    client = _server(system).client()
    client.config_set("maxmemory", "1")
    yield
    client.config_set("maxmemory", "0")
    client.close()


@kind("process", "redis", hold=(0.5, 1.5), weight=3)
def lose_a_reply(system: System, chance: random.Random) -> Generator[None]:
    """Lose a command, or the reply to it or half of that: of a claim, a settlement, an enqueue or a heartbeat."""
    words = script(chance.choice(["claim", "settle", "enqueue", "heartbeat", "job_state"])).sha.encode()
    half = chance.choice(["unsent", "unanswered", "torn"])
    name = chance.choice([name for name in system.proxies if not name.startswith("reaper")])
    with system.proxies[name].trapped(Trap(words, half, hold=chance.random() < 0.25)):
        yield


@kind("server", "file", hold=(0.3, 3.0), weight=3)
def hold_the_lock(system: System, _chance: random.Random) -> Generator[None]:
    """Hold the lock of the journal, as a process does that is stopped in the middle of an operation."""
    assert isinstance(system.servers, FileServers)
    file = os.open(system.servers.directory / MAIN / "journal.lock", os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
    os.close(file)


@kind("server", "file", hold=(0.0, 0.1))
def remove_notification_pipes(system: System, _chance: random.Random) -> Generator[None]:
    """Remove the named pipes by which processes wake each other."""
    assert isinstance(system.servers, FileServers)
    for pipe in (system.servers.directory / MAIN / "notifications").iterdir():
        pipe.unlink(missing_ok=True)
    yield
