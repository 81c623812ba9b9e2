"""Schedules, as users create and watch them: on every storage that has them, in both modes, on a moved clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pgjq

if TYPE_CHECKING:
    from tests.schedules.conftest import StorageHarness

MINUTE = 60.0
DAY = 86400.0


def test_any_worker_makes_the_job_of_each_tick_once(harness: StorageHarness) -> None:
    created = harness.call(
        "create_schedule", "nightly", "imports", {"shop": 7}, cron="0 3 * * *", timezone="Europe/Berlin", priority=5
    )
    assert (created.name, created.queue, created.cron, created.every) == ("nightly", "imports", "0 3 * * *", None)
    assert (created.timezone, created.paused, created.last_run_at, created.last_job_id) == (
        "Europe/Berlin",
        False,
        None,
        None,
    )
    assert created.next_run_at == harness.at("02:00:00")  # 3 o'clock in Berlin
    with harness.worker(), harness.worker("third"):
        for day in (1, 2, 3):
            harness.advance((harness.at("02:00:00", day) - harness.now).total_seconds())
            made = harness.ticks("nightly", day)[-1]
            assert (made.outcome, made.job_id) == ("made", f"nightly@2026-01-0{day}T02:00:00Z")
            assert made.tick == made.at == harness.now
    assert harness.jobs() == [f"nightly@2026-01-0{day}T02:00:00Z" for day in (1, 2, 3)]
    job = harness.client.get_status("imports", "nightly@2026-01-01T02:00:00Z")
    assert job is not None
    assert job.priority == 5
    after = harness.call("get_schedule", "nightly")
    assert (after.last_run_at, after.next_run_at) == (harness.at("02:00:00", 3), harness.at("02:00:00", 4))
    assert after.last_job_id == "nightly@2026-01-03T02:00:00Z"
    assert [info.name for info in harness.call("get_schedules")] == ["nightly"]
    assert after.payload == {"shop": 7}


def test_a_job_runs_with_its_payload_and_a_new_schedule_wakes_a_sleeping_worker(harness: StorageHarness) -> None:
    queue = pgjq.Queue("imports", storage=harness.storage, block_timeout=300)
    got: list[Any] = []
    ran = threading.Event()

    @queue.execute
    def handle(job: Any) -> None:
        got.append((job.id, job.payload))
        ran.set()

    with queue:
        harness.call("create_schedule", "often", "imports", {"shop": 7}, every=30)
        harness.advance(30)
        assert ran.wait(60)
        assert got == [("often@2026-01-01T00:00:30Z", {"shop": 7})]
        harness.call("update_schedule", "often", every=5, payload=[1])
        ran.clear()
        harness.advance(5)
        assert ran.wait(60)
    assert got[1] == ("often@2026-01-01T00:00:35Z", [1])


@pytest.mark.parametrize(
    ("missed", "deadline", "made", "not_made"),
    [
        ("once", None, ["02:00"], ["skipped", "skipped"]),
        ("all", None, ["00:00", "01:00", "02:00"], []),
        ("skip", None, [], ["too_late"] * 3),
        ("skip", 4000, ["02:00"], ["too_late"] * 2),
        ("all", 4000, ["00:00", "01:00", "02:00"], []),  # A deadline is a matter of "skip".
        ("once", 60, ["02:00"], ["skipped", "skipped"]),
    ],
)
def test_ticks_that_no_worker_made_in_time_follow_missed(
    harness: StorageHarness, missed: str, deadline: float | None, made: list[str], not_made: list[str]
) -> None:
    start = harness.now + timedelta(days=1)
    harness.call(
        "create_schedule", "hourly", "imports", every=3600, start_at=start, missed=missed, starting_deadline=deadline
    )
    harness.advance(DAY + 2.5 * 3600)  # 00:00, 01:00 and 02:00 of the second day are due.
    with harness.worker():
        outcomes = harness.outcomes("hourly", 3)
        assert sorted(outcomes) == sorted(["made"] * len(made) + not_made)
        harness.advance(1800)
        assert harness.outcomes("hourly", 4)[-1] == "made"  # On time again.
    assert harness.jobs() == [f"hourly@2026-01-02T{at}:00Z" for at in [*made, "03:00"]]


def test_all_missed_ticks_are_at_most_a_thousand_jobs_and_a_hundred_ticks_are_kept(harness: StorageHarness) -> None:
    harness.call("create_schedule", "often", "imports", every=1, missed="all", start_at=harness.now)
    harness.advance(5000)
    with harness.worker():
        harness.ticks("often", 100)
    jobs = harness.jobs()
    assert len(jobs) == 1000
    assert jobs[-1] == "often@2026-01-01T01:23:20Z"
    assert harness.client.get_schedule("often").next_run_at == harness.now + timedelta(seconds=1)


def test_overlap_skip_makes_no_job_while_the_last_one_is_live(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", every=60, overlap="skip", start_at=harness.now, max_attempts=1)
    with harness.worker():
        assert harness.outcomes("s", 1) == ["made"]
        harness.advance(60)
        assert harness.ticks("s", 2)[-1].outcome == "overlapped"
        assert harness.client.cancel("imports", "s@2026-01-01T00:00:00Z").status == "cancelled"
        harness.advance(60)
        assert harness.outcomes("s", 3)[-1] == "made"
    assert harness.jobs() == ["s@2026-01-01T00:00:00Z", "s@2026-01-01T00:02:00Z"]


def test_overlap_queue_one_makes_none_while_one_is_queued_or_failing(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", every=60, overlap="queue_one", start_at=harness.now)
    queue = pgjq.Queue("imports", storage=harness.storage, block_timeout=300, concurrency=2)
    going, go = threading.Semaphore(0), threading.Event()

    @queue.execute
    def handle(job: Any) -> None:
        going.release()
        go.wait(60)
        if job.id.endswith("00:00:00Z"):
            raise pgjq.Retry(delay=3600)

    with queue:
        assert going.acquire(timeout=60)
        harness.advance(60)  # The first is processing: one more may wait, and runs at once.
        assert harness.outcomes("s", 2) == ["made", "made"]
        assert going.acquire(timeout=60)
        harness.advance(60)  # Two are processing: no slot is free, so the third waits.
        assert harness.outcomes("s", 3)[-1] == "made"
        harness.advance(60)
        assert harness.outcomes("s", 4)[-1] == "overlapped"
        go.set()
        done = ["s@2026-01-01T00:01:00Z", "s@2026-01-01T00:02:00Z"]
        for job_id in done:
            harness.client.enqueue_and_wait("imports", job_id, None, timeout=60)
        harness.advance(60)  # The first one is failing for an hour.
        assert harness.outcomes("s", 5)[-1] == "overlapped"


def test_a_worker_whose_slots_are_all_taken_hears_of_a_new_schedule(harness: StorageHarness) -> None:
    queue = pgjq.Queue("imports", storage=harness.storage, block_timeout=300)
    going, go = threading.Event(), threading.Event()

    @queue.execute
    def handle(_job: Any) -> None:
        going.set()
        go.wait(60)

    with queue:
        queue.enqueue("long", None)
        assert going.wait(60)
        harness.call("create_schedule", "s", "imports", every=3600, start_at=harness.now)
        assert harness.outcomes("s", 1) == ["made"]
        go.set()


def test_jitter_delays_each_job_by_a_hash_of_name_and_tick(harness: StorageHarness) -> None:
    for name in ("a", "b"):
        harness.call("create_schedule", name, "imports", every=3600, start_at=harness.now, jitter=timedelta(minutes=10))
    with harness.worker():
        harness.ticks("a", 1)
        harness.ticks("b", 1)
    found = {job.id[0]: job for job in harness.client.find_jobs("imports")}
    late = [(found[name].run_at - harness.now).total_seconds() for name in ("a", "b")]
    assert all(0 <= seconds < 600 for seconds in late)
    assert late == pytest.approx([161.7418, 72.464052], abs=0.001)  # On every worker and storage.


def test_a_pause_builds_no_backlog_and_leaves_a_trace(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", cron="* * * * *", missed="all")
    assert harness.call("pause_schedule", "s").paused
    with harness.worker():
        harness.advance(MINUTE)
        assert harness.outcomes("s", 1) == ["paused"]
    harness.advance(10 * MINUTE)  # No worker, and paused.
    resumed = harness.call("resume_schedule", "s")
    assert (resumed.paused, resumed.next_run_at) == (False, harness.now + timedelta(minutes=1))
    with harness.worker():
        harness.advance(MINUTE)
        assert harness.outcomes("s", 2) == ["paused", "made"]
    assert harness.jobs() == ["s@2026-01-01T00:12:00Z"]


def test_a_changed_time_counts_from_the_change(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", cron="0 * * * *", missed="all", priority=1)
    harness.advance(3 * 3600 + 1)
    changed = harness.call("update_schedule", "s", cron="30 * * * *", timezone="Asia/Kolkata")
    assert changed.next_run_at == harness.at("04:00:00")
    kept = harness.call("update_schedule", "s", queue="exports", priority=None)
    assert (kept.next_run_at, kept.queue, kept.options) == (changed.next_run_at, "exports", {})
    every = harness.call("update_schedule", "s", every=timedelta(minutes=10))
    assert (every.cron, every.every) == (None, 600.0)
    assert every.next_run_at == harness.now + timedelta(minutes=10)
    with harness.worker():
        harness.advance(600)
        assert harness.outcomes("s", 1) == ["made"]
    assert harness.jobs("exports") == ["s@2026-01-01T03:10:01Z"]


def test_start_and_end_bound_the_runs(harness: StorageHarness) -> None:
    start, end = harness.now + timedelta(hours=5, minutes=30), harness.now + timedelta(hours=7)
    created = harness.call(
        "create_schedule", "s", "imports", cron="0 * * * *", start_at=start, end_at=end, missed="all"
    )
    assert created.next_run_at == harness.at("06:00:00")
    assert harness.call("preview_schedule", "s", 5) == [harness.at("06:00:00"), harness.at("07:00:00")]
    harness.advance(30 * 3600)
    with harness.worker():
        assert harness.outcomes("s", 2) == ["made", "made"]
    assert harness.client.get_schedule("s").next_run_at is None
    assert harness.call("preview_schedule", "s") == []


def test_trigger_makes_a_job_now_and_leaves_the_next_run(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", 7, cron="0 0 1 1 *", overlap="skip")
    harness.call("pause_schedule", "s")
    first, second = (harness.call("trigger_schedule", "s") for _ in range(2))
    assert harness.jobs() == [first, second]
    assert first.startswith("s@2026-01-01T00:00:00Z.")
    after = harness.client.get_schedule("s")
    assert (after.last_job_id, after.next_run_at) == (second, datetime(2027, 1, 1, tzinfo=UTC))
    assert harness.outcomes("s", 2) == ["triggered", "triggered"]
    harness.client.create_queue("narrow", policy="exclusive")
    harness.client.update_schedule("s", queue="narrow")
    harness.call("trigger_schedule", "s")
    with pytest.raises(pgjq.PolicyError, match="queued"):
        harness.call("trigger_schedule", "s")


def test_backfill_makes_the_jobs_of_past_ticks_once(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", cron="0 * * * *")
    past = [harness.now - timedelta(hours=n) for n in (3, 2, 1)]
    expected = ["s@2025-12-31T21:00:00Z", "s@2025-12-31T22:00:00Z", "s@2025-12-31T23:00:00Z"]
    assert harness.call("backfill_schedule", "s", past[0], harness.now) == expected
    assert harness.call("backfill_schedule", "s", past[1], harness.now) == []
    assert harness.outcomes("s", 5) == ["backfilled"] * 3 + ["refused"] * 2
    assert harness.jobs() == expected
    with pytest.raises(pgjq.ValidationError, match="1000"):
        harness.call("backfill_schedule", "s", harness.now - timedelta(hours=1001), harness.now)
    with pytest.raises(pgjq.ValidationError, match="future"):
        harness.call("backfill_schedule", "s", harness.now, harness.now + timedelta(hours=1, seconds=1))
    # A caller's clock that is a little ahead asks for nothing that is to come.
    assert harness.call("backfill_schedule", "s", past[2], harness.now + timedelta(minutes=1)) == [
        "s@2026-01-01T00:00:00Z"
    ]
    assert len(harness.call("backfill_schedule", "s", harness.now - timedelta(hours=1000), past[0])) == 997


def test_a_clock_that_steps_repeats_no_tick(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", cron="*/10 * * * *", missed="all")
    with harness.worker():
        harness.advance(1800)
        harness.ticks("s", 3)
        harness.advance(-1800)  # Back: these ticks were made.
        harness.advance(1795)
        assert len(harness.client.get_schedule_ticks("s")) == 3
        harness.advance(605)
        harness.ticks("s", 4)
        harness.advance(3600)  # Forward: the ticks in between are missed ones.
        harness.ticks("s", 10)
    assert len(set(harness.jobs())) == 10


def test_a_policy_that_refuses_the_job_does_not_stop_the_schedule(harness: StorageHarness) -> None:
    harness.client.create_queue("imports", policy="exclusive")
    harness.client.create_queue("strict", policy="key_strict_fifo")
    harness.call("create_schedule", "s", "imports", every=60, start_at=harness.now)
    harness.call("create_schedule", "t", "strict", every=60, start_at=harness.now)
    with harness.worker():
        assert harness.outcomes("s", 1) == ["made"]
        harness.advance(60)
        refused = harness.ticks("s", 2)[-1]
        assert (refused.outcome, refused.job_id) == ("refused", None)
        assert "queued" in (refused.detail or "")
        assert harness.outcomes("t", 2) == ["refused", "refused"]
    assert "singleton_key" in (harness.ticks("t", 2)[0].detail or "")


def test_ticks_are_events(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", every=60, overlap="skip", start_at=harness.now)
    events = []
    got = threading.Semaphore(0)
    harness.client.on("tick", lambda event: (events.append(event), got.release()))
    harness.call("cancel", "imports", "nothing")  # Waits until the client receives events.
    with harness.worker():
        assert got.acquire(timeout=60)
        harness.advance(60)
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


def test_names_are_taken_or_unknown(harness: StorageHarness) -> None:
    harness.call("create_schedule", "s", "imports", every=60)
    with pytest.raises(pgjq.ValidationError, match="exists"):
        harness.call("create_schedule", "s", "imports", every=60)
    harness.call("delete_schedule", "s")
    for method in ("get_schedule", "delete_schedule", "pause_schedule", "trigger_schedule", "get_schedule_ticks"):
        with pytest.raises(pgjq.ValidationError, match="no schedule 's'"):
            harness.call(method, "s")
    with pytest.raises(pgjq.ValidationError, match="name"):
        harness.call("create_schedule", "a\nb", "imports", every=60)
    harness.call("create_schedule", "s", "imports", every=60)  # Free again.


def test_redis_says_that_it_has_no_schedules() -> None:
    with pytest.raises(pgjq.UnsupportedError, match="no schedules"):
        pgjq.Client(pgjq.RedisStorage("redis://localhost:1")).create_schedule("s", "imports", every=60)
