"""What all tests share: plugins of their own, and the servers of Redis and Valkey.

The servers are started here, unless PGJQ_TEST_REDIS_URL names another Redis.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
import redis

import pgjq
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytest_plugins = ["tests.databases", "tests.leaks", "tests.programs", "tests.temporary"]


def pytest_configure() -> None:
    """Take Ctrl-C again: a shell that starts the tests in the background has them, and all they start, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis that is ours to fill."""
    if url := os.environ.get("PGJQ_TEST_REDIS_URL"):
        yield url
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Valkey."""
    with RedisServer(tmp_path_factory.mktemp("valkey"), make="valkey") as server:
        yield server.url


@pytest.fixture
def redis_storage(redis_url: str) -> Iterator[pgjq.RedisStorage]:
    """A storage on that Redis, with a prefix of its own."""
    with _empty_again(redis_url) as storage:
        yield storage


@pytest.fixture
def valkey_storage(valkey_url: str) -> Iterator[pgjq.RedisStorage]:
    """The same on that Valkey."""
    with _empty_again(valkey_url) as storage:
        yield storage


@contextmanager
def _empty_again(url: str) -> Generator[pgjq.RedisStorage]:
    storage = pgjq.RedisStorage(url, prefix=f"test-{uuid4().hex}")
    yield storage
    storage.close()
    with redis.Redis.from_url(url) as client:
        client.flushall()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write lone surrogates in captured logs as escapes: pytest-xdist ends the run when it has to send one."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
