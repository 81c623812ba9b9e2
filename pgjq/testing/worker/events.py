"""Worker suite: every step of a job publishes one event, in order."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.errors import JobFailedError, MaxRetriesError
from pgjq.lease import LeasePolicy
from pgjq.outcome import Discard, Retry, Snooze
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE, echo

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import EventLog, Harness, Style

RETRIED = ["queued", "processing", "failing", "processing", "completed"]
# The event names of each kind of job that `live` below runs.
LIVES = {
    "completed": ["queued", "processing", "completed"],
    "retried": RETRIED,
    "asked": RETRIED,
    "snoozed": ["queued", "processing", "queued", "processing", "completed"],
    "discarded": ["queued", "processing", "failed"],
    "exhausted": ["queued", "processing", "failing", "processing", "failed"],
}


class Lives:
    """A handler that treats each job as its id says."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def handle(self, job: Any) -> Any:
        first = job.id not in self.seen
        self.seen.add(job.id)
        match job.payload:
            case "exhausted":
                raise ValueError("boom")
            case "discarded":
                raise Discard("boom")
            case "retried" if first:
                raise ValueError("boom")
            case "asked" if first:
                raise Retry(delay=0)
            case "snoozed" if first:
                raise Snooze(delay=0)
            case life:
                return {"life": life}


async def live(harness: Harness, queue: Any, log: EventLog) -> None:
    """Run all kinds of jobs, and wait until the expected number of events has come."""
    async with harness.started(queue):
        for life in LIVES:
            await harness.call(queue.enqueue, life, life, max_attempts=2)
        for life in LIVES:
            await harness.until_state(queue, life, "completed", "failed")
        await wait_for_events(harness, log, sum(len(names) for names in LIVES.values()))


async def wait_for_events(harness: Harness, log: EventLog, count: int) -> None:
    """Wait until this many events have come."""
    await harness.until(lambda: len(log.all) >= count, f"{count} events come")


async def take(harness: Harness, feed: Any, last: str) -> list[Any]:
    """Take events of a subscription up to one with this name."""
    events: list[Any] = []
    while not events or events[-1].name != last:
        events.append(await harness.background(next if harness.mode == "sync" else anext, feed)())
    await harness.call(feed.close)
    return events


class Events(WorkerCases):
    """Events."""

    @case
    async def test_a_queue_tells_every_life_in_order(self, harness: Harness, style: Style) -> None:
        queue = harness.queue(Lives().handle, style=style)
        log = harness.log_events(queue)
        await live(harness, queue, log)
        assert {life: log.names(life) for life in LIVES} == LIVES
        by_name = {(event.id, event.name): event for event in log.all}
        assert {event.queue for event in log.all} == {QUEUE}
        assert all(event.at.utcoffset() is not None for event in log.all)
        assert [event.attempts for event in log.all if event.id == "retried"] == [0, 1, 1, 2, 2]
        assert by_name["retried", "completed"].result == {"life": "retried"}
        assert "boom" in str(by_name["retried", "failing"].error)

    @case
    async def test_a_failed_event_carries_why_and_what(self, harness: Harness) -> None:
        queue = harness.queue(Lives().handle)
        log = harness.log_events(queue, "failed")
        async with harness.started(queue):
            await harness.call(queue.enqueue, "exhausted", "exhausted", max_attempts=2)
            await harness.call(queue.enqueue, "discarded", "discarded", max_attempts=2)
            await wait_for_events(harness, log, 2)
        errors = {event.id: event.error for event in log.all}
        assert isinstance(errors["exhausted"], MaxRetriesError)
        assert (errors["exhausted"].payload, errors["exhausted"].attempts) == ("exhausted", 2)
        assert isinstance(errors["discarded"], JobFailedError)
        assert not isinstance(errors["discarded"], MaxRetriesError)

    @case
    async def test_a_client_tells_every_life_in_order(self, harness: Harness) -> None:
        queue, client = harness.queue(Lives().handle), harness.client()
        log = harness.log_events(client)
        # In async mode a subscription opens before the next call of the same client.
        await harness.call(client.enqueue, "other", "other", None)
        await wait_for_events(harness, log, 1)
        await live(harness, queue, log)
        await wait_for_events(harness, log, 1 + sum(len(names) for names in LIVES.values()))
        assert {life: log.names(life) for life in LIVES} == LIVES
        assert [event.attempts for event in log.all if event.id == "retried"] == [0, 1, 1, 2, 2]
        assert {(event.queue, event.id) for event in log.all} == {("other", "other")} | {(QUEUE, n) for n in LIVES}

    @case
    async def test_events_of_many_jobs_are_in_order_for_each(self, harness: Harness) -> None:
        queue, client = harness.queue(Lives().handle, concurrency=4), harness.client()
        here, anywhere = harness.log_events(queue), harness.log_events(client)
        await harness.call(client.enqueue, "other", "other", None)
        ids = [f"{n}" for n in range(30)]
        async with harness.started(queue):
            for n in ids:
                await harness.call(queue.enqueue, n, "retried")
            await wait_for_events(harness, here, 5 * len(ids))
            await wait_for_events(harness, anywhere, 5 * len(ids) + 1)
        assert {n: here.names(n) for n in ids} == dict.fromkeys(ids, RETRIED)
        assert {n: anywhere.names(n) for n in ids} == dict.fromkeys(ids, RETRIED)

    @case
    async def test_a_subscription_tells_of_one_queue_or_of_all(self, harness: Harness) -> None:
        queue, client = harness.queue(echo), harness.client()
        one, everything = client.subscribe(QUEUE), client.subscribe()
        if harness.mode == "async":
            await one
            await everything
        async with harness.started(queue):
            await harness.call(client.enqueue, "other", "x", None)
            await harness.call(queue.enqueue_and_wait, "a", 1)
        names = ["queued", "processing", "completed"]
        assert [(e.name, e.queue, e.id) for e in await take(harness, one, "completed")] == [
            (name, QUEUE, "a") for name in names
        ]
        assert [e.name for e in await take(harness, everything, "completed")] == ["queued", *names]

    @case
    async def test_cancelling_is_told_once_to_each(self, harness: Harness) -> None:
        queue, client = harness.queue(), harness.client()
        here, anywhere = harness.log_events(queue), harness.log_events(client)
        await harness.call(client.enqueue, "other", "other", None)
        await harness.call(queue.enqueue, "a", 1)
        await harness.call(queue.cancel, "a")
        assert (await harness.call(client.cancel, QUEUE, "a")).status == "cancelled"
        await harness.call(queue.enqueue, "last", 1)
        await harness.until(lambda: anywhere.names("last"), "the event of the last job")
        assert here.names("a") == ["queued", "cancelled"]
        assert anywhere.names("a") == ["queued", "cancelled"]

    @case
    async def test_duplicates_are_no_events(self, harness: Harness) -> None:
        queue, client = harness.queue(), harness.client()
        here, anywhere = harness.log_events(queue), harness.log_events(client)
        await harness.call(client.enqueue, "other", "other", None)
        for _ in range(2):
            await harness.call(queue.enqueue, "a", 1)
        await harness.call(queue.enqueue_many, [("a", 2), ("b", 2)])
        await harness.until(lambda: anywhere.names("b"), "the event of the last job")
        assert (here.names("a"), here.names("b")) == (["queued"], ["queued"])
        assert (anywhere.names("a"), anywhere.names("b")) == (["queued"], ["queued"])

    @case
    async def test_a_stall_is_told_with_what_became_of_the_job(self, harness: Harness) -> None:
        client = harness.client()
        anywhere = harness.log_events(client)
        await harness.call(client.enqueue, "other", "other", None)
        await wait_for_events(harness, anywhere, 1)
        await harness.abandon("again")
        await harness.abandon("last", max_attempts=1)
        queue = harness.queue(echo, lease_policy=LeasePolicy(reap_interval=0.05))
        here = harness.log_events(queue)
        async with harness.started(queue):
            await harness.until(lambda: "completed" in here.names("again"), "the job runs again")
            await harness.until(lambda: "failed" in here.names("last"), "the other job fails")
            await harness.until(lambda: "completed" in anywhere.names("again"), "the event in another process")
        assert here.names("again") == ["stalled", "failing", "processing", "completed"]
        assert here.names("last") == ["stalled", "failed"]
        assert anywhere.names("again") == ["queued", "processing", *here.names("again")]
        assert anywhere.names("last") == ["queued", "processing", *here.names("last")]
        for log in (here, anywhere):
            told = {e.id: (e.count, e.action, e.reason) for e in log.all if e.name == "stalled"}
            assert told == {"again": (1, "recovered", "lease"), "last": (1, "failed", "lease")}

    @case
    @requires("definitions")
    async def test_a_dead_letter_is_told_on_its_own_queue(self, harness: Harness) -> None:
        queue, client = harness.queue(Lives().handle), harness.client()
        await harness.call(client.create_queue, "dead")
        await harness.call(client.create_queue, QUEUE, dead_letter="dead")
        log = harness.log_events(client)
        await harness.call(client.enqueue, "other", "other", None)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", "exhausted", max_attempts=1)
            await wait_for_events(harness, log, 5)
        (letter,) = await harness.call(client.find_jobs, "dead")
        assert (letter.source.queue, letter.source.id, letter.source.attempts) == (QUEUE, "a", 1)
        assert log.names("a") == ["queued", "processing", "failed"]
        assert [(e.queue, e.attempts) for e in log.all if e.id == letter.id and e.name == "queued"] == [("dead", 0)]

    @case
    async def test_a_callback_that_raises_is_an_error_event_and_stops_nothing(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_event: Any) -> None:
            raise LookupError("a callback's own")

        client = harness.client()
        queue = harness.queue(echo)
        for source in (queue, client):
            source.on("completed", fail)
        here, anywhere = harness.log_events(queue), harness.log_events(client)
        errors = [harness.log_events(source, "error") for source in (queue, client)]
        queue.on("error", fail)
        with caplog.at_level(logging.CRITICAL, "pgjq"):
            async with harness.started(queue):
                for n in range(2):
                    await harness.call(client.enqueue, QUEUE, f"{n}", n)
                    await harness.until_state(queue, f"{n}", "completed")
                    await harness.until(lambda n=n: "completed" in anywhere.names(f"{n}"), "the event elsewhere")
                await harness.until(lambda: all(len(log.all) == 2 for log in errors), "the errors")
        assert {type(error) for log in errors for error in log.all} == {LookupError}
        assert here.names("1") == ["processing", "completed"]

    @case
    async def test_callbacks_enqueue_the_next_job(self, harness: Harness) -> None:
        queue, client = harness.queue(echo), harness.client()

        # The same call blocks in sync mode, and makes a coroutine in async mode, which is awaited.
        def enqueue_next(event: Any) -> Any:
            return queue.enqueue(event.id + "a", 1) if len(event.id) < 4 else None

        queue.on("queued", enqueue_next)
        queue.on("completed", enqueue_next)
        client.on("processing", enqueue_next)
        await harness.call(client.enqueue, "other", "other", None)
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", 1)
            assert (await harness.until_state(queue, "aaaa", "completed")).result == 1

    @case
    @pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()], ids=["exit", "interrupt"])
    async def test_a_callback_that_asks_to_exit_stops_no_worker(self, harness: Harness, error: BaseException) -> None:
        def leave(_event: Any) -> None:
            raise error

        queue = harness.queue(echo)
        queue.on("completed", leave)
        errors = harness.log_events(queue, "error")
        async with harness.started(queue):
            for n in range(2):
                assert await harness.call(queue.enqueue_and_wait, f"{n}", n) == n
            await wait_for_events(harness, errors, 2)

    @case
    @pytest.mark.parametrize("mode", ["async"])
    async def test_callbacks_may_be_coroutine_functions_and_may_fail(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue, client = harness.queue(echo), harness.client()
        told, errors = list[str](), list[type]()

        async def note(event: Any) -> None:
            told.append(event.id)
            raise SystemExit if event.id == "b" else LookupError

        async def note_error(error: BaseException) -> None:
            errors.append(type(error))
            raise error  # An error callback that fails is not called with its own error.

        for source in (queue, client):
            source.on("completed", note)
            source.on("error", note_error)
        await client.enqueue("other", "other", None)
        with caplog.at_level(logging.CRITICAL, "pgjq"):
            async with harness.started(queue):
                for name in ("a", "b"):
                    assert await queue.enqueue_and_wait(name, 1, timeout=LIMIT) == 1
                    await harness.until(lambda name=name: told.count(name) == 2, "both callbacks are called")
                await harness.until(lambda: len(errors) == 4, "the errors")
        assert sorted(told) == ["a", "a", "b", "b"]
        assert Counter(errors) == {LookupError: 2, SystemExit: 2}
