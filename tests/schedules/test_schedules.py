"""Schedules, as users create and watch them: on every storage that has them, in both modes, on a moved clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pgjq

if TYPE_CHECKING:
    from tests.schedules.conftest import Place

MINUTE = 60.0
DAY = 86400.0


def test_any_worker_makes_the_job_of_each_tick_once(place: Place) -> None:
    created = place.call(
        "create_schedule", "nightly", "imports", {"shop": 7}, cron="0 3 * * *", timezone="Europe/Berlin", priority=5
    )
    assert (created.name, created.queue, created.cron, created.every) == ("nightly", "imports", "0 3 * * *", None)
    assert (created.timezone, created.paused, created.last_run_at, created.last_job_id) == (
        "Europe/Berlin",
        False,
        None,
        None,
    )
    assert created.next_run_at == place.at("02:00:00")  # 3 o'clock in Berlin
    with place.worker(), place.worker("third"):
        for day in (1, 2, 3):
            place.advance((place.at("02:00:00", day) - place.now).total_seconds())
            made = place.ticks("nightly", day)[-1]
            assert (made.outcome, made.job_id) == ("made", f"nightly@2026-01-0{day}T02:00:00Z")
            assert made.tick == made.at == place.now
    assert place.jobs() == [f"nightly@2026-01-0{day}T02:00:00Z" for day in (1, 2, 3)]
    job = place.client.get_status("imports", "nightly@2026-01-01T02:00:00Z")
    assert job is not None
    assert job.priority == 5
    after = place.call("get_schedule", "nightly")
    assert (after.last_run_at, after.next_run_at) == (place.at("02:00:00", 3), place.at("02:00:00", 4))
    assert after.last_job_id == "nightly@2026-01-03T02:00:00Z"
    assert [info.name for info in place.call("get_schedules")] == ["nightly"]
    assert after.payload == {"shop": 7}


def test_a_job_runs_with_its_payload_and_a_new_schedule_wakes_a_sleeping_worker(place: Place) -> None:
    queue = pgjq.Queue("imports", storage=place.storage, block_timeout=300)
    got: list[Any] = []
    ran = threading.Event()

    @queue.execute
    def handle(job: Any) -> None:
        got.append((job.id, job.payload))
        ran.set()

    with queue:
        place.call("create_schedule", "often", "imports", {"shop": 7}, every=30)
        place.advance(30)
        assert ran.wait(60)
        assert got == [("often@2026-01-01T00:00:30Z", {"shop": 7})]
        place.call("update_schedule", "often", every=5, payload=[1])
        ran.clear()
        place.advance(5)
        assert ran.wait(60)
    assert got[1] == ("often@2026-01-01T00:00:35Z", [1])


@pytest.mark.parametrize(
    ("missed", "deadline", "made", "not_made"),
    [
        ("once", None, ["02:00"], ["skipped", "skipped"]),
        ("all", None, ["00:00", "01:00", "02:00"], []),
        ("skip", None, [], ["too_late"] * 3),
        ("skip", 4000, ["02:00"], ["too_late"] * 2),
        ("all", 4000, ["02:00"], ["too_late"] * 2),
    ],
)
def test_ticks_that_no_worker_made_in_time_follow_missed(
    place: Place, missed: str, deadline: float | None, made: list[str], not_made: list[str]
) -> None:
    start = place.now + timedelta(days=1)
    place.call(
        "create_schedule", "hourly", "imports", every=3600, start_at=start, missed=missed, starting_deadline=deadline
    )
    place.advance(DAY + 2.5 * 3600)  # 00:00, 01:00 and 02:00 of the second day are due.
    with place.worker():
        outcomes = place.outcomes("hourly", 3)
        assert sorted(outcomes) == sorted(["made"] * len(made) + not_made)
        place.advance(1800)
        assert place.outcomes("hourly", 4)[-1] == "made"  # On time again.
    assert place.jobs() == [f"hourly@2026-01-02T{at}:00Z" for at in [*made, "03:00"]]


def test_all_missed_ticks_are_at_most_a_thousand_jobs_and_a_hundred_ticks_are_kept(place: Place) -> None:
    place.call("create_schedule", "often", "imports", every=1, missed="all", start_at=place.now)
    place.advance(5000)
    with place.worker():
        place.ticks("often", 100)
    jobs = place.jobs()
    assert len(jobs) == 1000
    assert jobs[-1] == "often@2026-01-01T01:23:20Z"
    assert place.client.get_schedule("often").next_run_at == place.now + timedelta(seconds=1)


def test_overlap_skip_makes_no_job_while_the_last_one_is_live(place: Place) -> None:
    place.call("create_schedule", "s", "imports", every=60, overlap="skip", start_at=place.now, max_attempts=1)
    with place.worker():
        assert place.outcomes("s", 1) == ["made"]
        place.advance(60)
        assert place.ticks("s", 2)[-1].outcome == "overlapped"
        assert place.client.cancel("imports", "s@2026-01-01T00:00:00Z").status == "cancelled"
        place.advance(60)
        assert place.outcomes("s", 3)[-1] == "made"
    assert place.jobs() == ["s@2026-01-01T00:00:00Z", "s@2026-01-01T00:02:00Z"]


def test_overlap_queue_one_makes_none_while_one_is_queued_or_failing(place: Place) -> None:
    place.call("create_schedule", "s", "imports", every=60, overlap="queue_one", start_at=place.now)
    queue = pgjq.Queue("imports", storage=place.storage, block_timeout=300, concurrency=2)
    going, go = threading.Semaphore(0), threading.Event()

    @queue.execute
    def handle(job: Any) -> None:
        going.release()
        go.wait(60)
        if job.id.endswith("00:00:00Z"):
            raise pgjq.Retry(delay=3600)

    with queue:
        assert going.acquire(timeout=60)
        place.advance(60)  # The first is processing: one more may wait, and runs at once.
        assert place.outcomes("s", 2) == ["made", "made"]
        assert going.acquire(timeout=60)
        place.advance(60)  # Two are processing: no slot is free, so the third waits.
        assert place.outcomes("s", 3)[-1] == "made"
        place.advance(60)
        assert place.outcomes("s", 4)[-1] == "overlapped"
        go.set()
        done = ["s@2026-01-01T00:01:00Z", "s@2026-01-01T00:02:00Z"]
        for job_id in done:
            place.client.enqueue_and_wait("imports", job_id, None, timeout=60)
        place.advance(60)  # The first one is failing for an hour.
        assert place.outcomes("s", 5)[-1] == "overlapped"


def test_jitter_delays_each_job_by_a_hash_of_name_and_tick(place: Place) -> None:
    for name in ("a", "b"):
        place.call("create_schedule", name, "imports", every=3600, start_at=place.now, jitter=timedelta(minutes=10))
    with place.worker():
        place.ticks("a", 1)
        place.ticks("b", 1)
    found = {job.id[0]: job for job in place.client.find_jobs("imports")}
    late = [(found[name].run_at - place.now).total_seconds() for name in ("a", "b")]
    assert all(0 <= seconds < 600 for seconds in late)
    assert late == pytest.approx([161.7418, 72.464052], abs=0.001)  # On every worker and storage.


def test_a_pause_builds_no_backlog_and_leaves_a_trace(place: Place) -> None:
    place.call("create_schedule", "s", "imports", cron="* * * * *", missed="all")
    assert place.call("pause_schedule", "s").paused
    with place.worker():
        place.advance(MINUTE)
        assert place.outcomes("s", 1) == ["paused"]
    place.advance(10 * MINUTE)  # No worker, and paused.
    resumed = place.call("resume_schedule", "s")
    assert (resumed.paused, resumed.next_run_at) == (False, place.now + timedelta(minutes=1))
    with place.worker():
        place.advance(MINUTE)
        assert place.outcomes("s", 2) == ["paused", "made"]
    assert place.jobs() == ["s@2026-01-01T00:12:00Z"]


def test_a_changed_time_counts_from_the_change(place: Place) -> None:
    place.call("create_schedule", "s", "imports", cron="0 * * * *", missed="all", priority=1)
    place.advance(3 * 3600 + 1)
    changed = place.call("update_schedule", "s", cron="30 * * * *", timezone="Asia/Kolkata")
    assert changed.next_run_at == place.at("04:00:00")
    kept = place.call("update_schedule", "s", queue="exports", priority=None)
    assert (kept.next_run_at, kept.queue, kept.options) == (changed.next_run_at, "exports", {})
    every = place.call("update_schedule", "s", every=timedelta(minutes=10))
    assert (every.cron, every.every) == (None, 600.0)
    assert every.next_run_at == place.now + timedelta(minutes=10)
    with place.worker():
        place.advance(600)
        assert place.outcomes("s", 1) == ["made"]
    assert place.jobs("exports") == ["s@2026-01-01T03:10:01Z"]


def test_start_and_end_bound_the_runs(place: Place) -> None:
    start, end = place.now + timedelta(hours=5, minutes=30), place.now + timedelta(hours=7)
    created = place.call("create_schedule", "s", "imports", cron="0 * * * *", start_at=start, end_at=end, missed="all")
    assert created.next_run_at == place.at("06:00:00")
    assert place.call("preview_schedule", "s", 5) == [place.at("06:00:00"), place.at("07:00:00")]
    place.advance(30 * 3600)
    with place.worker():
        assert place.outcomes("s", 2) == ["made", "made"]
    assert place.client.get_schedule("s").next_run_at is None
    assert place.call("preview_schedule", "s") == []


def test_trigger_makes_a_job_now_and_leaves_the_next_run(place: Place) -> None:
    place.call("create_schedule", "s", "imports", 7, cron="0 0 1 1 *", overlap="skip")
    place.call("pause_schedule", "s")
    first, second = (place.call("trigger_schedule", "s") for _ in range(2))
    assert place.jobs() == [first, second]
    assert first.startswith("s@2026-01-01T00:00:00Z.")
    after = place.client.get_schedule("s")
    assert (after.last_job_id, after.next_run_at) == (second, datetime(2027, 1, 1, tzinfo=UTC))
    assert place.outcomes("s", 2) == ["triggered", "triggered"]
    place.client.create_queue("narrow", policy="exclusive")
    place.client.update_schedule("s", queue="narrow")
    place.call("trigger_schedule", "s")
    with pytest.raises(pgjq.PolicyError, match="queued"):
        place.call("trigger_schedule", "s")


def test_backfill_makes_the_jobs_of_past_ticks_once(place: Place) -> None:
    place.call("create_schedule", "s", "imports", cron="0 * * * *")
    past = [place.now - timedelta(hours=n) for n in (3, 2, 1)]
    expected = ["s@2025-12-31T21:00:00Z", "s@2025-12-31T22:00:00Z", "s@2025-12-31T23:00:00Z"]
    assert place.call("backfill_schedule", "s", past[0], place.now) == expected
    assert place.call("backfill_schedule", "s", past[1], place.now) == []
    assert place.outcomes("s", 5) == ["backfilled"] * 3 + ["refused"] * 2
    assert place.jobs() == expected
    with pytest.raises(pgjq.ValidationError, match="1000"):
        place.call("backfill_schedule", "s", place.now - timedelta(hours=1001), place.now)
    with pytest.raises(pgjq.ValidationError, match="future"):
        place.call("backfill_schedule", "s", place.now, place.now + timedelta(hours=1))
    assert len(place.call("backfill_schedule", "s", place.now - timedelta(hours=1000), past[0])) == 997


def test_a_clock_that_steps_repeats_no_tick(place: Place) -> None:
    place.call("create_schedule", "s", "imports", cron="*/10 * * * *", missed="all")
    with place.worker():
        place.advance(1800)
        place.ticks("s", 3)
        place.advance(-1800)  # Back: these ticks were made.
        place.advance(1795)
        assert len(place.client.get_schedule_ticks("s")) == 3
        place.advance(605)
        place.ticks("s", 4)
        place.advance(3600)  # Forward: the ticks in between are missed ones.
        place.ticks("s", 10)
    assert len(set(place.jobs())) == 10


def test_a_policy_that_refuses_the_job_does_not_stop_the_schedule(place: Place) -> None:
    place.client.create_queue("imports", policy="exclusive")
    place.client.create_queue("strict", policy="key_strict_fifo")
    place.call("create_schedule", "s", "imports", every=60, start_at=place.now)
    place.call("create_schedule", "t", "strict", every=60, start_at=place.now)
    with place.worker():
        assert place.outcomes("s", 1) == ["made"]
        place.advance(60)
        refused = place.ticks("s", 2)[-1]
        assert (refused.outcome, refused.job_id) == ("refused", None)
        assert "queued" in (refused.detail or "")
        assert place.outcomes("t", 2) == ["refused", "refused"]
    assert "singleton_key" in (place.ticks("t", 2)[0].detail or "")


def test_ticks_are_events(place: Place) -> None:
    place.call("create_schedule", "s", "imports", every=60, overlap="skip", start_at=place.now)
    events = []
    got = threading.Semaphore(0)
    place.client.on("tick", lambda event: (events.append(event), got.release()))
    place.call("cancel", "imports", "nothing")  # Waits until the client receives events.
    with place.worker():
        assert got.acquire(timeout=60)
        place.advance(60)
        assert got.acquire(timeout=60)
    assert [(e.id, e.queue, e.reason) for e in events] == [
        ("s@2026-01-01T00:00:00Z", "imports", "made"),
        ("s@2026-01-01T00:01:00Z", "imports", "overlapped"),
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "cron or every"),
        ({"cron": "* * * * *", "every": 60}, "not both"),
        ({"cron": "61 * * * *"}, "minute"),
        ({"cron": "0 0 30 2 *"}, "never runs"),
        ({"every": 0.5}, "every"),
        ({"every": float("nan")}, "every"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"cron": "* * * * *", "missed": "twice"}, "missed"),
        ({"cron": "* * * * *", "overlap": "maybe"}, "overlap"),
        ({"cron": "* * * * *", "jitter": -1}, "jitter"),
        ({"cron": "* * * * *", "starting_deadline": 0}, "starting_deadline"),
        ({"cron": "* * * * *", "start_at": datetime(2026, 1, 1)}, "start_at"),  # noqa: DTZ001
        ({"cron": "* * * * *", "delay": 5}, "delay"),
        ({"cron": "* * * * *", "colour": "red"}, "colour"),
        ({"cron": "* * * * *", "priority": "high"}, "priority"),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_is_written(options: dict[str, Any], text: str) -> None:
    with pgjq.Client(pgjq.MemoryStorage()) as client:
        with pytest.raises(pgjq.ValidationError, match=text):
            client.create_schedule("s", "imports", **options)
        assert client.get_schedules() == []


def test_names_are_taken_or_unknown(place: Place) -> None:
    place.call("create_schedule", "s", "imports", every=60)
    with pytest.raises(pgjq.ValidationError, match="exists"):
        place.call("create_schedule", "s", "imports", every=60)
    place.call("delete_schedule", "s")
    for method in ("get_schedule", "delete_schedule", "pause_schedule", "trigger_schedule", "get_schedule_ticks"):
        with pytest.raises(pgjq.ValidationError, match="no schedule 's'"):
            place.call(method, "s")
    with pytest.raises(pgjq.ValidationError, match="name"):
        place.call("create_schedule", "a\nb", "imports", every=60)
    place.call("create_schedule", "s", "imports", every=60)  # Free again.


def test_redis_says_that_it_has_no_schedules() -> None:
    with pytest.raises(pgjq.UnsupportedError, match="no schedules"):
        pgjq.Client(pgjq.RedisStorage("redis://localhost:1")).create_schedule("s", "imports", every=60)
