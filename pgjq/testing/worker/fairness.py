"""Worker suite: how work is shared between workers, and between the queues of one worker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pgjq.client import Client
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import echo
from pgjq.testing.worker.recorder import Gate, Recorder

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness


class Fairness(WorkerCases):
    """How work is shared between workers, and between the queues of one worker."""

    @case
    async def test_quick_jobs_behind_a_slow_one_run_on_an_idle_worker(self, harness: Harness) -> None:
        """The first worker expects quick jobs, and prefetches many before another worker starts."""
        gate = Gate("slow")
        handler = Recorder(gate)
        first, second = harness.queue(handler), harness.queue(handler, storage=harness.reopen())
        quick = [f"{n}" for n in range(20)]
        async with harness.started(first):
            await harness.call(first.enqueue_many, [(f"warm{n}", None) for n in range(20)])
            await harness.until_all(first, [f"warm{n}" for n in range(20)])
            await harness.call(first.enqueue_many, [("slow", None), *((job_id, None) for job_id in quick)])
            await harness.until_state(first, "slow", "processing")
            async with harness.started(second):
                await harness.until_all(first, quick)
                assert (await harness.call(first.get_status, "slow")).state == "processing"
            gate.open()
            await harness.until_state(first, "slow", "completed")
        assert sorted(handler.ids[20:]) == sorted(["slow", *quick])
        assert set(handler.attempts) == {1}

    @case
    async def test_quick_jobs_behind_a_slow_one_run_on_its_worker_if_there_is_no_other(self, harness: Harness) -> None:
        gate = Gate("slow")
        handler = Recorder(gate)
        queue = harness.queue(handler)
        quick = [f"{n}" for n in range(20)]
        async with harness.started(queue):
            await harness.call(queue.enqueue_many, [(f"warm{n}", None) for n in range(20)])
            await harness.until_all(queue, [f"warm{n}" for n in range(20)])
            await harness.call(queue.enqueue_many, [("slow", None), *((job_id, None) for job_id in quick)])
            await harness.until_state(queue, "slow", "processing")
            await harness.sleep(1.2)
            gate.open()
            await harness.until_all(queue, ["slow", *quick])
        assert handler.ids[20:] == ["slow", *quick]
        assert set(handler.attempts) == {1}

    @case
    async def test_no_queue_of_a_worker_starves_while_another_always_has_jobs(self, harness: Harness) -> None:
        """The backlog of `one` exceeds a worker's prefetch, and each run enqueues another job."""
        producer = Client(harness.storage)

        def again(_job: Any) -> None:
            time.sleep(0.001)
            producer.enqueue("one", None, None)

        one = harness.queue(again, name="one")
        others = [harness.queue(echo, name=name) for name in ("two", "three")]
        ids = [f"{n}" for n in range(20)]
        await harness.call(one.enqueue_many, [(None, None) for _ in range(600)])
        for queue in others:
            await harness.call(queue.enqueue_many, [(job_id, None) for job_id in ids])
        async with harness.started(harness.worker(one, *others, concurrency=2)):
            for queue in others:
                await harness.until_all(queue, ids)
        assert producer.get_queue_stats("one").queued > 0, "the other queue always had jobs"

    @case
    async def test_a_strict_worker_serves_its_queues_in_the_order_given(self, harness: Harness) -> None:
        handler = Recorder()
        queues = [harness.queue(handler, name=name) for name in ("one", "two")]
        ids = [[f"{queue.name}-{n}" for n in range(5)] for queue in queues]
        for queue, names in reversed(list(zip(queues, ids, strict=True))):
            await harness.call(queue.enqueue_many, [(job_id, None) for job_id in names])
        async with harness.started(harness.worker(*queues, concurrency=1, strict=True)):
            await harness.until_all(queues[1], ids[1])
        assert handler.ids == ids[0] + ids[1]
