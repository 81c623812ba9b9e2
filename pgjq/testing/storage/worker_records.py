"""Storage contract: worker records, for monitoring."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.storage.workers import Registration
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import QUEUE, Harness

DAY = 86400


def registration(key: str = "1", worker: str = "ann", *queues: str, heartbeat: float = 10.0) -> Registration:
    """Make a registration of a worker."""
    return Registration(key, worker, queues or (QUEUE,), heartbeat)


async def listed(harness: Harness) -> list[tuple[Any, ...]]:
    """List the workers: id, queues, alive."""
    return [(w.id, w.queues, w.alive) for w in await harness.ops.workers()]


class Registering(Cases):
    """Worker records: registered, renewed, removed, silent, pruned."""

    @case
    async def test_a_worker_is_listed_from_its_registration_until_it_stops(self, harness: Harness) -> None:
        assert await harness.ops.workers() == []
        await harness.ops.worker_seen(registration())
        (worker,) = await harness.ops.workers()
        assert (worker.id, worker.queues, worker.running, worker.alive) == ("ann", (QUEUE,), 0, True)
        assert worker.started_at == worker.last_seen
        await harness.ops.worker_stopped(registration())
        assert await harness.ops.workers() == []

    @case
    async def test_a_worker_that_is_seen_again_keeps_its_start(self, harness: Harness) -> None:
        await harness.ops.worker_seen(registration())
        harness.clock.advance(20)
        await harness.ops.worker_seen(registration())
        (worker,) = await harness.ops.workers()
        assert (worker.last_seen - worker.started_at).total_seconds() == pytest.approx(20)

    @case
    async def test_a_worker_is_alive_for_three_of_its_own_intervals(self, harness: Harness) -> None:
        await harness.ops.worker_seen(registration("1", "ann", heartbeat=10))
        await harness.ops.worker_seen(registration("2", "bob", heartbeat=100))
        harness.clock.advance(29)
        assert [w.alive for w in await harness.ops.workers()] == [True, True]
        harness.clock.advance(1)
        assert await listed(harness) == [("bob", (QUEUE,), True), ("ann", (QUEUE,), False)]
        harness.clock.advance(270)
        assert [w.alive for w in await harness.ops.workers()] == [False, False]
        await harness.ops.worker_seen(registration("1", "ann", heartbeat=10))
        assert await listed(harness) == [("ann", (QUEUE,), True), ("bob", (QUEUE,), False)]

    @case
    @pytest.mark.parametrize("pruned", [False, True])
    async def test_a_silent_worker_is_listed_for_a_day(self, harness: Harness, pruned: bool) -> None:
        await harness.ops.worker_seen(registration(heartbeat=10))
        harness.clock.advance(30 + DAY - 1)
        if pruned:
            await harness.ops.prune()
        assert await listed(harness) == [("ann", (QUEUE,), False)]
        harness.clock.advance(1)
        if pruned:
            await harness.ops.prune()
        assert await harness.ops.workers() == []

    @case
    async def test_pruning_leaves_workers_that_are_alive(self, harness: Harness) -> None:
        await harness.ops.worker_seen(registration())
        for _ in range(3):
            harness.clock.advance(DAY)
            await harness.ops.worker_seen(registration())
            await harness.ops.prune()
        (worker,) = await harness.ops.workers()
        assert (worker.last_seen - worker.started_at).total_seconds() == pytest.approx(3 * DAY)

    @case
    async def test_registrations_of_one_worker_are_listed_together(self, harness: Harness) -> None:
        await harness.ops.worker_seen(registration("1", "ann", "mail", "sms"))
        harness.clock.advance(1)
        await harness.ops.worker_seen(registration("2", "ann", "push", "mail"))
        assert await listed(harness) == [("ann", ("mail", "sms", "push"), True)]
        await harness.ops.worker_stopped(registration("1", "ann", "mail", "sms"))
        assert await listed(harness) == [("ann", ("push", "mail"), True)]
        await harness.ops.worker_stopped(registration("2", "ann", "push", "mail"))
        assert await harness.ops.workers() == []

    @case
    async def test_a_worker_that_was_killed_and_started_anew_is_as_its_new_registration_says(
        self, harness: Harness
    ) -> None:
        await harness.ops.worker_seen(registration("1", "ann", "mail"))
        harness.clock.advance(30)
        await harness.ops.worker_seen(registration("2", "ann", "sms"))
        (worker,) = await harness.ops.workers()
        assert (worker.queues, worker.alive, worker.started_at) == (("sms",), True, worker.last_seen)
        harness.clock.advance(30)
        assert await listed(harness) == [("ann", ("sms",), False)]

    @case
    async def test_stopping_twice_or_without_a_registration_is_fine(self, harness: Harness) -> None:
        await harness.ops.worker_stopped(registration("unknown"))
        await harness.ops.worker_seen(registration())
        for _ in range(2):
            await harness.ops.worker_stopped(registration())
        await harness.ops.worker_seen(registration())
        assert await listed(harness) == [("ann", (QUEUE,), True)]

    @case
    async def test_workers_are_listed_with_the_number_of_jobs_they_run(self, harness: Harness) -> None:
        await harness.ops.worker_seen(registration("1", "ann"))
        await harness.ops.worker_seen(registration("2", "bob"))
        await harness.enqueue_all("a", "b")
        await harness.claim(worker="ann")
        assert [(w.id, w.running) for w in await harness.ops.workers()] == [("ann", 2), ("bob", 0)]

    @case
    @pytest.mark.parametrize("name", ["a b", "ann:7", "%41nn", "{ann}", "ann/../bob", "ü€😀", "'\"\\", "x" * 300])
    async def test_any_name_will_do(self, harness: Harness, name: str) -> None:
        await harness.ops.worker_seen(registration("1", name, name))
        assert await listed(harness) == [(name, (name,), True)]
        await harness.ops.worker_stopped(registration("1", name, name))
        assert await harness.ops.workers() == []

    @case
    async def test_any_number_of_workers_register_at_once(self, harness: Harness) -> None:
        await harness.together(8, lambda n: harness.ops.worker_seen(registration(f"{n}", f"w{n % 4}", f"q{n}")))
        assert sorted(w.id for w in await harness.ops.workers()) == ["w0", "w1", "w2", "w3"]
        await harness.together(8, lambda n: harness.ops.worker_stopped(registration(f"{n}", f"w{n % 4}", f"q{n}")))
        assert await harness.ops.workers() == []

    @case
    async def test_pruning_the_record_of_a_worker_leaves_its_job_alone(self, harness: Harness) -> None:
        await harness.ops.worker_seen(registration(heartbeat=1))
        await harness.enqueue("a")
        await harness.claim(worker="ann", lease=4 * DAY, heartbeat=None, expire=None)
        harness.clock.advance(2 * DAY)
        await harness.ops.prune()
        assert await harness.ops.workers() == []
        assert await harness.ops.reap() == []
        harness.clock.advance(2 * DAY)
        assert [(r.id, r.worker, r.action) for r in await harness.ops.reap()] == [("a", "ann", "recovered")]
