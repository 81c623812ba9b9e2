"""All subjects, on servers that are started for them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pgjq
from pgjq.embedded import EmbeddedServer
from tests.databases import FAST, new_database
from tests.redis_server import RedisServer
from tests.storage_comparison.subject import FileSubject, MemorySubject, PostgresSubject, RedisSubject, Subject

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

NAMES = ("file", "postgres", "redis", "valkey")


@contextmanager
def started_subjects(names: Sequence[str] = NAMES) -> Generator[list[Subject]]:
    """Have memory and other subjects, on servers that run as long as the block lasts."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        subjects = [stack.enter_context(MemorySubject())]
        for name in names:
            (directory / name).mkdir()
            subjects.append(stack.enter_context(_player(name, directory / name, stack)))
        yield subjects


def _player(name: str, directory: Path, stack: ExitStack) -> Subject:
    match name:
        case "file":
            return FileSubject(directory)
        case "postgres":
            server = stack.enter_context(EmbeddedServer.start(directory, settings=FAST))
            database = stack.enter_context(new_database(server.conninfo))
            pgjq.migrate(database)
            return PostgresSubject(database)
        case "redis" | "valkey":
            return RedisSubject(name, stack.enter_context(RedisServer(directory, make=name)).url)
        case _:
            raise ValueError(name)
