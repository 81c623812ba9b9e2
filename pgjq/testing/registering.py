"""Storage contract: worker records, for monitoring."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.storage.workers import Registration
from pgjq.testing.bench import QUEUE, Bench
from pgjq.testing.cases import Cases, case

DAY = 86400


def registration(key: str = "1", worker: str = "ann", *queues: str, heartbeat: float = 10.0) -> Registration:
    """Make a registration of a worker."""
    return Registration(key, worker, queues or (QUEUE,), heartbeat)


async def listed(bench: Bench) -> list[tuple[Any, ...]]:
    """List the workers: id, queues, alive."""
    return [(w.id, w.queues, w.alive) for w in await bench.ops.workers()]


class Registering(Cases):
    """Worker records: registered, renewed, removed, silent, pruned."""

    @case
    async def test_a_worker_is_listed_from_its_registration_until_it_stops(self, bench: Bench) -> None:
        assert await bench.ops.workers() == []
        await bench.ops.worker_seen(registration())
        (worker,) = await bench.ops.workers()
        assert (worker.id, worker.queues, worker.running, worker.alive) == ("ann", (QUEUE,), 0, True)
        assert worker.started_at == worker.last_seen
        await bench.ops.worker_stopped(registration())
        assert await bench.ops.workers() == []

    @case
    async def test_a_worker_that_is_seen_again_keeps_its_start(self, bench: Bench) -> None:
        await bench.ops.worker_seen(registration())
        bench.clock.advance(20)
        await bench.ops.worker_seen(registration())
        (worker,) = await bench.ops.workers()
        assert (worker.last_seen - worker.started_at).total_seconds() == pytest.approx(20)

    @case
    async def test_a_worker_is_alive_for_three_of_its_own_intervals(self, bench: Bench) -> None:
        await bench.ops.worker_seen(registration("1", "ann", heartbeat=10))
        await bench.ops.worker_seen(registration("2", "bob", heartbeat=100))
        bench.clock.advance(29)
        assert [w.alive for w in await bench.ops.workers()] == [True, True]
        bench.clock.advance(1)
        assert await listed(bench) == [("bob", (QUEUE,), True), ("ann", (QUEUE,), False)]
        bench.clock.advance(270)
        assert [w.alive for w in await bench.ops.workers()] == [False, False]
        await bench.ops.worker_seen(registration("1", "ann", heartbeat=10))
        assert await listed(bench) == [("ann", (QUEUE,), True), ("bob", (QUEUE,), False)]

    @case
    @pytest.mark.parametrize("pruned", [False, True])
    async def test_a_silent_worker_is_listed_for_a_day(self, bench: Bench, pruned: bool) -> None:
        await bench.ops.worker_seen(registration(heartbeat=10))
        bench.clock.advance(30 + DAY - 1)
        if pruned:
            await bench.ops.prune()
        assert await listed(bench) == [("ann", (QUEUE,), False)]
        bench.clock.advance(1)
        if pruned:
            await bench.ops.prune()
        assert await bench.ops.workers() == []

    @case
    async def test_pruning_leaves_workers_that_are_alive(self, bench: Bench) -> None:
        await bench.ops.worker_seen(registration())
        for _ in range(3):
            bench.clock.advance(DAY)
            await bench.ops.worker_seen(registration())
            await bench.ops.prune()
        (worker,) = await bench.ops.workers()
        assert (worker.last_seen - worker.started_at).total_seconds() == pytest.approx(3 * DAY)

    @case
    async def test_registrations_of_one_worker_are_listed_together(self, bench: Bench) -> None:
        await bench.ops.worker_seen(registration("1", "ann", "mail", "sms"))
        bench.clock.advance(1)
        await bench.ops.worker_seen(registration("2", "ann", "push", "mail"))
        assert await listed(bench) == [("ann", ("mail", "sms", "push"), True)]
        await bench.ops.worker_stopped(registration("1", "ann", "mail", "sms"))
        assert await listed(bench) == [("ann", ("push", "mail"), True)]
        await bench.ops.worker_stopped(registration("2", "ann", "push", "mail"))
        assert await bench.ops.workers() == []

    @case
    async def test_a_worker_that_was_killed_and_started_anew_is_as_its_new_registration_says(
        self, bench: Bench
    ) -> None:
        await bench.ops.worker_seen(registration("1", "ann", "mail"))
        bench.clock.advance(30)
        await bench.ops.worker_seen(registration("2", "ann", "sms"))
        (worker,) = await bench.ops.workers()
        assert (worker.queues, worker.alive, worker.started_at) == (("sms",), True, worker.last_seen)
        bench.clock.advance(30)
        assert await listed(bench) == [("ann", ("sms",), False)]

    @case
    async def test_stopping_twice_or_without_a_registration_is_fine(self, bench: Bench) -> None:
        await bench.ops.worker_stopped(registration("unknown"))
        await bench.ops.worker_seen(registration())
        for _ in range(2):
            await bench.ops.worker_stopped(registration())
        await bench.ops.worker_seen(registration())
        assert await listed(bench) == [("ann", (QUEUE,), True)]

    @case
    async def test_workers_are_listed_with_the_number_of_jobs_they_run(self, bench: Bench) -> None:
        await bench.ops.worker_seen(registration("1", "ann"))
        await bench.ops.worker_seen(registration("2", "bob"))
        await bench.enqueue_all("a", "b")
        await bench.claim(worker="ann")
        assert [(w.id, w.running) for w in await bench.ops.workers()] == [("ann", 2), ("bob", 0)]

    @case
    @pytest.mark.parametrize("name", ["a b", "ann:7", "%41nn", "{ann}", "ann/../bob", "ü€😀", "'\"\\", "x" * 300])
    async def test_any_name_will_do(self, bench: Bench, name: str) -> None:
        await bench.ops.worker_seen(registration("1", name, name))
        assert await listed(bench) == [(name, (name,), True)]
        await bench.ops.worker_stopped(registration("1", name, name))
        assert await bench.ops.workers() == []

    @case
    async def test_any_number_of_workers_register_at_once(self, bench: Bench) -> None:
        await bench.together(8, lambda n: bench.ops.worker_seen(registration(f"{n}", f"w{n % 4}", f"q{n}")))
        assert sorted(w.id for w in await bench.ops.workers()) == ["w0", "w1", "w2", "w3"]
        await bench.together(8, lambda n: bench.ops.worker_stopped(registration(f"{n}", f"w{n % 4}", f"q{n}")))
        assert await bench.ops.workers() == []

    @case
    async def test_pruning_the_record_of_a_worker_leaves_its_job_alone(self, bench: Bench) -> None:
        await bench.ops.worker_seen(registration(heartbeat=1))
        await bench.enqueue("a")
        await bench.claim(worker="ann", lease=4 * DAY, heartbeat=None, expire=None)
        bench.clock.advance(2 * DAY)
        await bench.ops.prune()
        assert await bench.ops.workers() == []
        assert await bench.ops.reap() == []
        bench.clock.advance(2 * DAY)
        assert [(r.id, r.worker, r.action) for r in await bench.ops.reap()] == [("a", "ann", "recovered")]
