"""The reaper that stands alone: deadlines, events, leaders, and what it does when the storage is away."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq import LeaderElection, LeasePolicy, MemoryStorage, NewJob, PostgresStorage, Reaper, ValidationError
from pgjq import reaper as reaper_module
from pgjq.blocking import drive
from pgjq.storage.postgres.operations import PostgresOperations
from tests.pgbouncer import pgbouncer
from tests.worker.conftest import Events, abandon, until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pgjq.storage.base import Storage

LEADER = """
    select pid from pg_locks
    where locktype = 'advisory' and objsubid = 2 and mode = 'ExclusiveLock'
    and classid = (hashtext('pgjq.leader')::bigint & 4294967295)::oid
"""
END_THE_LEADER = f"select pg_terminate_backend(pid) from ({LEADER}) as leader"  # noqa: S608
SELDOM = LeasePolicy(reap_interval=3600)
QUICK = LeaderElection(enabled=True, lock_ttl=0.9, renewal_interval=0.1, acquire_retry_interval=0.05)


@pytest.fixture(params=["postgres", "redis_storage"])
def led(request: pytest.FixtureRequest) -> Storage:
    """A storage that has leaders."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def reapers() -> Iterator[Callable[..., Reaper]]:
    """Make reapers that are stopped in the end."""
    made: list[Reaper] = []

    def make(storage: Storage, **options: Any) -> Reaper:
        made.append(Reaper(storage=storage, **options))
        return made[-1]

    yield make
    for reaper in made:
        reaper.stop()


def test_a_stalled_job_is_taken_back_at_its_deadline_whatever_the_interval(storage: Storage) -> None:
    reaper = Reaper(storage=storage, lease_policy=SELDOM)
    heard = Events(reaper, "stalled")
    with reaper:
        until(lambda: reaper.is_leader)
        abandon(storage, NewJob("a", None))
        (event,) = heard.wait()
    assert (event.name, event.queue, event.id, event.attempts) == ("stalled", "q", "a", 1)
    assert (event.count, event.action, event.reason, event.error) == (1, "recovered", "lease", None)


def test_a_reaper_sleeps_no_longer_than_a_fifth_of_a_second_or_until_the_next_deadline(storage: Storage) -> None:
    """This is what the promise of 250 ms rests on, without a clock in the test."""
    reaper = Reaper(storage=storage, lease_policy=SELDOM)
    with reaper:
        step = reaper._running._step  # type: ignore[union-attr]
        until(lambda: step() == pytest.approx(0.2))
        abandon(storage, NewJob("long", None), policy=LeasePolicy(lease=60))
        assert step() == pytest.approx(0.2)
        abandon(storage, NewJob("short", None), policy=LeasePolicy(lease=0.15, heartbeat=None))
        assert step() <= 0.15


def test_everything_that_stalled_before_the_start_is_taken_back(storage: Storage) -> None:
    abandon(storage, *(NewJob(str(n), None) for n in range(2500)), policy=LeasePolicy(lease=0.001, heartbeat=None))
    reaper = Reaper(storage=storage, lease_policy=SELDOM)
    heard = Events(reaper, "stalled")
    with reaper:
        assert len({event.id for event in heard.wait(2500)}) == 2500


def test_the_interval_is_a_floor_for_a_clock_that_jumped(reapers: Callable[..., Reaper]) -> None:
    """Deadlines are told by the storage; if they are told wrong, it sweeps all the same."""
    storage = MemoryStorage()
    abandon(storage, NewJob("a", None))

    class Blind:
        def __getattr__(self, name: str) -> Any:
            return getattr(storage.operations("sync"), name)

        async def next_deadline(self) -> float | None:
            return None

    reaper = reapers(storage, lease_policy=LeasePolicy(reap_interval=0.05))
    storage.dedicated = Blind  # type: ignore[method-assign,assignment]
    heard = Events(reaper, "stalled")
    reaper.start()
    assert heard.wait()[0].id == "a"


def test_a_job_that_failed_comes_with_its_error_and_its_payload(storage: Storage) -> None:
    abandon(storage, NewJob("a", {"order": 7}, max_attempts=1))
    reaper = Reaper(storage=storage)
    heard = Events(reaper, "stalled")
    with reaper:
        (event,) = heard.wait()
    assert (event.action, type(event.error)) == ("failed", pgjq.MaxRetriesError)
    assert (event.error.payload, event.error.attempts) == ({"order": 7}, 1)
    assert event.error.original_error == pgjq.JobError("Stalled", "its worker went silent (worker ghost)")


def test_the_payload_is_read_by_the_reapers_serde(storage: Storage) -> None:
    class Shouting(pgjq.JsonSerde):
        def deserialize(self, data: bytes) -> Any:
            return super().deserialize(data).upper()

    abandon(storage, NewJob("a", "quiet", max_attempts=1))
    reaper = Reaper(storage=storage, payload_serde=Shouting())
    heard = Events(reaper, "stalled")
    with reaper:
        assert heard.wait()[0].error.payload == "QUIET"


def test_patience_is_the_reapers_own(storage: Storage) -> None:
    abandon(storage, NewJob("a", None))
    patient, prompt = Reaper(storage=storage, lease_policy=LeasePolicy(stale_age=3600)), Reaper(storage=storage)
    none, one = Events(patient, "stalled"), Events(prompt, "stalled")
    with patient:
        time.sleep(0.3)
        assert none.events == []
        with prompt:
            one.wait()
    assert none.events == []


def test_what_was_taken_back_is_logged_once(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    abandon(storage, NewJob("a", None), NewJob("b", None))
    reaper = Reaper(storage=storage, logger=logging.getLogger("mine"))
    heard = Events(reaper, "stalled")
    with caplog.at_level(logging.INFO, "mine"), reaper:
        heard.wait(2)
    said = [r.getMessage() for r in caplog.records if r.name == "mine"]
    assert said == ["released stale running jobs count=2", "job stalled", "job stalled"]


def test_stopping_leaves_no_thread_and_it_can_be_started_again(led: Storage) -> None:
    reaper = Reaper(storage=led, leader_election=QUICK)
    others = set(threading.enumerate())
    for _ in range(2):
        with reaper:
            until(lambda: reaper.is_leader)
            with pytest.raises(pgjq.PgjqError, match="started already"):
                reaper.start()
        assert not reaper.is_leader
        left = set(threading.enumerate()) - others
        assert [thread.name for thread in left if thread.name.startswith("pgjq reaper")] == []
    reaper.stop()


def test_a_queue_and_a_reaper_live_in_one_process(storage: Storage) -> None:
    abandon(storage, NewJob("a", 7))
    queue = pgjq.Queue("q", storage=storage, lease_policy=LeasePolicy(reap_interval=0))
    queue.execute(lambda job: job.attempts)
    done = Events(queue, "completed")
    with Reaper(storage=storage), queue:
        assert done.wait()[0].result == 2


def test_one_leads_and_only_it_takes_jobs_back(led: Storage, reapers: Callable[..., Reaper]) -> None:
    first, second = (reapers(led, leader_election=QUICK) for _ in range(2))
    leads, follows = (
        Events(first, "leadership_acquired", "leadership_lost", "stalled"),
        Events(second, "stalled"),
    )
    first.start()
    assert [(e.name, e.id) for e in leads.wait()] == [("leadership_acquired", first.reaper_id)]
    second.start()
    abandon(led, *(NewJob(str(n), None) for n in range(50)))
    assert {e.name for e in leads.wait(51)[1:]} == {"stalled"}
    assert (first.is_leader, second.is_leader, follows.events) == (True, False, [])


def test_a_leader_proves_its_office_every_renewal_interval(led: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    ops: Any = led.operations("sync")
    elect, asked = ops.elect, list[tuple[str, str, float]]()

    async def note(role: str, candidate: str, *, ttl: float) -> bool:
        asked.append((role, candidate, ttl))
        return await elect(role, candidate, ttl=ttl)

    monkeypatch.setattr(ops, "elect", note)
    election = LeaderElection(enabled=True, lock_ttl=60, renewal_interval=0.01, acquire_retry_interval=60)
    reaper = Reaper(storage=led, leader_election=election)
    heard = Events(reaper, "leadership_acquired", "leadership_lost")
    with reaper:
        until(lambda: len(asked) >= 4)
        assert [event.name for event in heard.events] == ["leadership_acquired"]
    assert set(asked) == {("reaper", reaper.reaper_id, 60)}


def test_without_an_election_every_reaper_acts(storage: Storage, reapers: Callable[..., Reaper]) -> None:
    first, second = reapers(storage, lease_policy=SELDOM), reapers(storage, lease_policy=SELDOM)
    heard = Events(second, "stalled")
    first.start()
    second.start()
    assert (first.is_leader, second.is_leader) == (True, True)
    first.stop()
    abandon(storage, NewJob("a", None))
    assert heard.wait()[0].id == "a"


def test_stopping_hands_leadership_over_at_once(led: Storage, reapers: Callable[..., Reaper]) -> None:
    slow = LeaderElection(enabled=True, lock_ttl=3600, renewal_interval=1200, acquire_retry_interval=0.05)
    first, second = (reapers(led, leader_election=slow) for _ in range(2))
    lost, acquired = Events(first, "leadership_lost"), Events(second, "leadership_acquired")
    first.start()
    until(lambda: first.is_leader)
    second.start()
    first.stop()
    assert (lost.wait()[0].id, acquired.wait()[0].id) == (first.reaper_id, second.reaper_id)
    assert (first.is_leader, second.is_leader) == (False, True)


def test_a_new_leader_takes_back_what_is_overdue(led: Storage, reapers: Callable[..., Reaper]) -> None:
    leader, heir = (reapers(led, leader_election=QUICK, lease_policy=SELDOM) for _ in range(2))
    leader.start()
    until(lambda: leader.is_leader)
    heir.start()
    heard = Events(heir, "stalled")
    leader.stop()
    abandon(led, NewJob("a", None))
    assert heard.wait()[0].id == "a"


def test_a_leader_that_gets_no_answer_stops_acting_and_stops_when_told(
    database: str, postgres: PostgresStorage, reapers: Callable[..., Reaper]
) -> None:
    with Proxy(database) as proxy:
        cut_off = reapers(PostgresStorage(proxy.conninfo), leader_election=QUICK)
        rival = reapers(postgres, leader_election=QUICK)
        heard = Events(cut_off, "leadership_acquired", "leadership_lost")
        overlap: list[bool] = []
        rival.on("leadership_acquired", lambda: overlap.append(cut_off.is_leader))
        cut_off.start()
        heard.wait()
        rival.start()
        proxy.silence()
        heard.wait(2)
        until(lambda: rival.is_leader)
        cut_off.stop()
        cut_off.storage.close()
        proxy.restore()
    assert ([e.name for e in heard.events], overlap) == (["leadership_acquired", "leadership_lost"], [False])


def test_a_leader_whose_session_was_ended_never_leads_beside_its_heir(
    database: str, reapers: Callable[..., Reaper]
) -> None:
    """Proofs are rare here, so that only the socket shows the loss."""
    rare = LeaderElection(enabled=True, lock_ttl=3600, renewal_interval=1800, acquire_retry_interval=0.05)
    storages = [PostgresStorage(database) for _ in range(3)]
    candidates = [reapers(storage, leader_election=rare) for storage in storages]
    heard = [Events(reaper, "leadership_lost") for reaper in candidates]
    for reaper in candidates:
        reaper.start()
    with psycopg.connect(database, autocommit=True) as connection:
        for _ in range(10):
            until(lambda: sum(reaper.is_leader for reaper in candidates) == 1)
            leader = next(n for n, reaper in enumerate(candidates) if reaper.is_leader)
            losses = len(heard[leader].events)
            connection.execute(END_THE_LEADER)
            others = [reaper for reaper in candidates if reaper is not candidates[leader]]
            while len(heard[leader].events) == losses:
                assert not (any(reaper.is_leader for reaper in others) and candidates[leader].is_leader)
    for reaper in candidates:
        reaper.stop()
        reaper.storage.close()


@pytest.mark.parametrize("event", ["leadership_acquired", "stalled"])
def test_a_callback_may_stop_its_reaper(led: Storage, event: Any) -> None:
    reaper = Reaper(storage=led, leader_election=QUICK)
    stopped = threading.Event()
    reaper.on(event, lambda _event: (reaper.stop(), stopped.set()))
    reaper.start()
    abandon(led, NewJob("a", None))
    assert stopped.wait(60)
    assert not reaper.is_leader
    assert drive(led.operations("sync").elect("reaper", "another", ttl=30))


def test_a_lock_may_last_longer_than_the_server_can_count(led: Storage, reapers: Callable[..., Reaper]) -> None:
    reaper = reapers(led, leader_election=LeaderElection(enabled=True, lock_ttl=10**9))
    reaper.start()
    until(lambda: reaper.is_leader)
    reaper.stop()
    assert not reaper.is_leader


def test_a_leader_whose_session_was_ended_stands_again(
    database: str, postgres: PostgresStorage, reapers: Callable[..., Reaper]
) -> None:
    reaper = reapers(postgres, leader_election=QUICK)
    heard = Events(reaper, "leadership_acquired")
    reaper.start()
    heard.wait()
    with psycopg.connect(database, autocommit=True) as connection:
        (ended,) = connection.execute(LEADER).fetchall()
        connection.execute("select pg_terminate_backend(%s, 5000)", ended)
        until(lambda: connection.execute(LEADER).fetchall() not in ([], [ended]))
    until(lambda: reaper.is_leader)
    assert {event.id for event in heard.events} == {reaper.reaper_id}


def test_behind_a_pooler_nobody_leads_and_that_is_told(
    database: str, reapers: Callable[..., Reaper], tmp_path: Path
) -> None:
    with pgbouncer(database, tmp_path) as pooled:
        storages = [PostgresStorage(pooled) for _ in range(2)]
        candidates = [reapers(storage, leader_election=QUICK) for storage in storages]
        errors = [Events(reaper, "error") for reaper in candidates]
        for reaper in candidates:
            reaper.start()
        for heard in errors:
            assert all(isinstance(error, pgjq.UnsupportedError) for error in heard.wait(3))
            assert "leader election needs a direct connection to PostgreSQL" in str(heard.events[0])
        assert [reaper.is_leader for reaper in candidates] == [False, False]
        for reaper, storage in zip(candidates, storages, strict=True):
            reaper.stop()
            storage.close()
    direct = reapers(PostgresStorage(database), leader_election=QUICK)
    direct.start()
    until(lambda: direct.is_leader)  # No lock was left behind in the pooler's sessions.
    direct.stop()
    direct.storage.close()


def test_a_leader_that_wins_again_in_the_same_election_goes_on_reaping(
    database: str, postgres: PostgresStorage, reapers: Callable[..., Reaper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session ends and it is elected again at once: leadership never changes, so nothing but a look wakes it."""
    in_doubt, looked = threading.Event(), threading.Event()
    step, elect = reaper_module._Running._step, PostgresOperations.elect

    def note_look(running: reaper_module._Running) -> float:
        doubts = in_doubt.is_set() and not running.is_active
        wait = step(running)
        if doubts:
            looked.set()
        return wait

    async def elect_after_a_look(ops: PostgresOperations, *args: Any, **options: Any) -> bool:
        if in_doubt.is_set():
            assert looked.wait(60)
        return await elect(ops, *args, **options)

    monkeypatch.setattr(reaper_module._Running, "_step", note_look)
    monkeypatch.setattr(PostgresOperations, "elect", elect_after_a_look)
    reaper = reapers(postgres, leader_election=LeaderElection(enabled=True))
    stalled, lost = Events(reaper, "stalled"), Events(reaper, "leadership_lost")
    reaper.start()
    until(lambda: reaper.is_leader)
    in_doubt.set()
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute(END_THE_LEADER).rowcount == 1
    until(lambda: not reaper.is_leader)
    until(lambda: reaper.is_leader)
    abandon(postgres, NewJob("a", None))
    assert stalled.wait()[0].id == "a"
    assert lost.events == []


def test_without_an_election_a_reaper_works_behind_a_pooler(
    database: str, postgres: PostgresStorage, reapers: Callable[..., Reaper], tmp_path: Path
) -> None:
    with pgbouncer(database, tmp_path) as pooled:
        storage = PostgresStorage(pooled)
        reaper = reapers(storage)
        heard = Events(reaper, "stalled")
        reaper.start()
        abandon(postgres, NewJob("a", None))
        assert heard.wait()[0].id == "a"
        reaper.stop()
        storage.close()


def test_a_storage_that_is_away_is_told_and_waited_for(
    database: str, postgres: PostgresStorage, reapers: Callable[..., Reaper]
) -> None:
    with Proxy(database) as proxy:
        storage = PostgresStorage(proxy.conninfo)
        reaper = reapers(storage)
        errors, stalled = Events(reaper, "error"), Events(reaper, "stalled")
        proxy.refuse()
        reaper.start()
        assert isinstance(errors.wait()[0], pgjq.StorageUnavailableError)
        abandon(postgres, NewJob("a", None))
        proxy.restore()
        assert stalled.wait()[0].id == "a"
        reaper.stop()
        storage.close()


def test_a_callback_that_raises_is_told_and_stops_nobody(storage: Storage) -> None:
    reaper = Reaper(storage=storage)
    reaper.on("stalled", lambda _event: 1 / 0)
    errors, stalled = Events(reaper, "error"), Events(reaper, "stalled")
    with reaper:
        abandon(storage, NewJob("a", None))
        assert isinstance(errors.wait()[0], ZeroDivisionError)
        abandon(storage, NewJob("b", None))
        stalled.wait(2)


def test_memory_has_no_leaders_and_says_so() -> None:
    with pytest.raises(pgjq.UnsupportedError, match="MemoryStorage has no leader election"):
        Reaper(storage=MemoryStorage(), leader_election=LeaderElection(enabled=True))


def test_ids_are_readable_and_differ() -> None:
    storage = MemoryStorage()
    ids = {Reaper(storage=storage).reaper_id for _ in range(10)}
    assert len(ids) == 10
    assert all(name.startswith("reaper-") for name in ids)


def test_visibility_timeout_is_short_for_the_policy_that_queues_make_of_it() -> None:
    storage = MemoryStorage()
    policy = Reaper(storage=storage, visibility_timeout=60).lease_policy
    assert policy == pgjq.Queue(storage=storage, visibility_timeout=60).lease_policy


async def coroutine(_event: Any) -> None:
    """A reaper calls callbacks on a thread, so no code could await it."""


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s: Reaper(storage=s, visibility_timeout=0), "visibility_timeout must be more than 0"),
        (lambda s: Reaper(storage=s, visibility_timeout=1, lease_policy=LeasePolicy()), "not both"),
        (lambda s: Reaper(storage=s).on("completed", print), "there is no event 'completed'; the events are stalled"),
        (lambda s: Reaper(storage=s).on("stalled", 7), "a callback must be callable"),
        (lambda s: Reaper(storage=s).on("stalled", coroutine), "a reaper calls plain functions"),
    ],
)
def test_what_cannot_work_is_refused(use: Callable[[Storage], Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        use(MemoryStorage())
