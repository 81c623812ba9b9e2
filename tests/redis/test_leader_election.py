"""Leaders on Redis: an office lapses by the server's clock, and its holder's own is a little faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from pgjq import LeaderElection, NewJob, Reaper, RedisStorage
from tests.worker.conftest import Events, abandon, until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from tests.redis_server import RedisServer

QUICK = LeaderElection(enabled=True, lock_ttl=0.9, renewal_interval=0.1, acquire_retry_interval=0.05)


def test_a_leader_that_gets_no_answer_stops_acting_and_stops_when_told(
    redis_server: RedisServer, storage: RedisStorage
) -> None:
    with Proxy(f"host=127.0.0.1 port={redis_server.port}") as proxy:
        cut_off = Reaper(
            storage=RedisStorage(host="127.0.0.1", port=int(conninfo_to_dict(proxy.conninfo)["port"] or 0)),
            leader_election=QUICK,
        )
        rival = Reaper(storage=storage, leader_election=QUICK)
        heard, saved = (
            Events(cut_off, "leadership_acquired", "leadership_lost"),
            Events(rival, "stalled"),
        )
        overlap: list[bool] = []
        rival.on("leadership_acquired", lambda: overlap.append(cut_off.is_leader))
        cut_off.start()
        heard.wait()
        rival.start()
        abandon(storage, NewJob("a", None))
        proxy.silence()
        heard.wait(2)
        until(lambda: rival.is_leader)
        cut_off.stop()
        rival.stop()
        cut_off.storage.close()
        proxy.restore()
    assert ([e.name for e in heard.events], overlap) == (["leadership_acquired", "leadership_lost"], [False])
    assert len(saved.events) <= 1


def test_a_leader_goes_on_after_a_restart_of_the_server(redis_server: RedisServer, storage: RedisStorage) -> None:
    reaper = Reaper(storage=storage, leader_election=QUICK)
    stalled = Events(reaper, "stalled")
    reaper.on("error", lambda _error: None)
    with reaper:
        until(lambda: reaper.is_leader)
        redis_server.restart()
        abandon(storage, NewJob("a", None))
        assert stalled.wait()[0].id == "a"


def test_a_lock_that_the_server_forgot_ends_the_first_ones_office_when_another_has_it(
    redis_server: RedisServer, storage: RedisStorage
) -> None:
    first, second = (Reaper(storage=storage, leader_election=QUICK) for _ in range(2))
    lost, won = Events(first, "leadership_lost"), Events(second, "leadership_acquired")
    with first, redis_server.client() as client:
        until(lambda: first.is_leader)
        client.set(storage.shared.keys.leader_key("reaper"), second.reaper_id, px=500)
        lost.wait()
        with second:
            won.wait()
            assert not first.is_leader
