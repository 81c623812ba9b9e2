"""All players, on servers that are started for them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pgjq
from pgjq.embedded import EmbeddedServer
from tests.databases import FAST, new_database
from tests.redis_server import RedisServer
from tests.stories.player import FilePlayer, MemoryPlayer, Player, PostgresPlayer, RedisPlayer

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

NAMES = ("file", "postgres", "redis", "valkey")


@contextmanager
def started_players(names: Sequence[str] = NAMES) -> Generator[list[Player]]:
    """Have memory and other players, on servers that run as long as the block lasts."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        players = [stack.enter_context(MemoryPlayer())]
        for name in names:
            (directory / name).mkdir()
            players.append(stack.enter_context(_player(name, directory / name, stack)))
        yield players


def _player(name: str, directory: Path, stack: ExitStack) -> Player:
    match name:
        case "file":
            return FilePlayer(directory)
        case "postgres":
            server = stack.enter_context(EmbeddedServer.start(directory, settings=FAST))
            database = stack.enter_context(new_database(server.conninfo))
            pgjq.migrate(database)
            return PostgresPlayer(database)
        case "redis" | "valkey":
            return RedisPlayer(name, stack.enter_context(RedisServer(directory, make=name)).url)
        case _:
            raise ValueError(name)
