"""Worker suite: which workers `get_workers` lists, and which of them are alive."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pgjq.lease import LeasePolicy
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import QUEUE, echo

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.testing.worker.harness import Harness

# A worker that is killed is not alive after three of these.
HEARTBEAT = 1.0
PROCESS = """
import pgjq
queue = pgjq.Queue({queue!r}, storage={source}, worker_id={worker!r}, block_timeout=30.0,
                   lease_policy=pgjq.LeasePolicy(lease=300, heartbeat={heartbeat}))
queue.execute(lambda job: job.payload)
queue.run()
"""


async def listed(harness: Harness, client: Any) -> dict[str, Any]:
    """Return the listed workers by id."""
    return {worker.id: worker for worker in await harness.call(client.get_workers)}


class WorkerRecords(WorkerCases):
    """Which workers `get_workers` lists, and which of them are alive."""

    async def _until_queues(self, harness: Harness, client: Any, worker: str, *queues: str) -> Any:
        async def shown() -> Any:
            found = (await listed(harness, client)).get(worker)
            return found if found is not None and sorted(found.queues) == sorted(queues) else None

        return await harness.until(shown, f"worker {worker!r} is listed with {queues}")

    @case
    async def test_a_worker_is_listed_while_it_runs_and_is_gone_once_it_has_stopped(self, harness: Harness) -> None:
        client, queue = harness.client(), harness.queue(echo, worker_id="ann")
        await harness.start(queue)
        worker = await self._until_queues(harness, client, "ann", QUEUE)
        assert worker.alive
        await harness.stop(queue)
        assert await listed(harness, client) == {}

    @case
    async def test_a_worker_that_is_started_again_is_listed_anew(self, harness: Harness) -> None:
        client, queue = harness.client(), harness.queue(echo, worker_id="ann")
        await harness.start(queue)
        first = await self._until_queues(harness, client, "ann", QUEUE)
        await harness.stop(queue)
        await harness.start(queue)
        second = await self._until_queues(harness, client, "ann", QUEUE)
        assert second.started_at > first.started_at
        await harness.stop(queue)
        assert await listed(harness, client) == {}

    @case
    async def test_an_idle_worker_is_seen_again_and_again(self, harness: Harness) -> None:
        client = harness.client()
        for heartbeat in (0.05, HEARTBEAT):
            queue = harness.queue(echo, worker_id="ann", lease_policy=LeasePolicy(lease=60, heartbeat=heartbeat))
            async with harness.started(queue):
                first = await self._until_queues(harness, client, "ann", QUEUE)

                async def is_seen_again(before: Any = first) -> bool:
                    worker = (await listed(harness, client))["ann"]
                    assert (worker.alive, worker.started_at) == (True, before.started_at)
                    return worker.last_seen > before.last_seen

                await harness.until(is_seen_again)

    @case
    async def test_queues_that_share_a_worker_id_are_listed_as_one_worker(self, harness: Harness) -> None:
        client = harness.client()
        mail, sms = (harness.queue(echo, name=name, worker_id="ann") for name in ("mail", "sms"))
        await harness.start(mail)
        await harness.start(sms)
        await self._until_queues(harness, client, "ann", "mail", "sms")
        await harness.stop(mail)
        assert (await listed(harness, client))["ann"].queues == ("sms",)
        await harness.stop(sms)
        assert await listed(harness, client) == {}

    @case
    async def test_a_worker_of_several_queues_is_listed_with_all_of_them(self, harness: Harness) -> None:
        client = harness.client()
        mail, sms = (harness.queue(echo, name=name, worker_id=f"of {name}") for name in ("mail", "sms"))
        async with harness.started(harness.worker(mail, sms)):
            worker = await self._until_queues(harness, client, "of mail", "mail", "sms")
            assert worker.queues == ("mail", "sms")
        assert await listed(harness, client) == {}

    @case
    async def test_a_worker_without_heartbeats_is_listed_and_leaves(self, harness: Harness) -> None:
        client = harness.client()
        queue = harness.queue(echo, worker_id="ann", lease_policy=LeasePolicy.visibility(30))
        async with harness.started(queue):
            assert (await self._until_queues(harness, client, "ann", QUEUE)).alive
        assert await listed(harness, client) == {}

    @case
    async def test_a_stopped_worker_that_left_a_job_unfinished_is_gone(self, harness: Harness) -> None:
        client = harness.client()

        def wait(job: Any) -> None:
            job.signal.wait(60)

        queue = harness.queue(wait, worker_id="ann")
        await harness.start(queue)
        await harness.call(queue.enqueue, "a", None)
        await harness.until_state(queue, "a", "processing")
        await harness.stop(queue, grace=0)
        assert await listed(harness, client) == {}
        assert (await harness.call(queue.get_status, "a")).state == "queued"

    @case
    @requires("processes")
    async def test_a_killed_worker_is_not_alive_after_three_of_its_own_intervals(self, harness: Harness) -> None:
        client = harness.client()
        with _process(harness, "killed") as process, _process(harness, "slow", heartbeat=60.0):
            await self._until_queues(harness, client, "killed", QUEUE)
            slow = await self._until_queues(harness, client, "slow", QUEUE)
            process.kill()
            process.wait()

            async def is_dead() -> bool:
                return not (await listed(harness, client))["killed"].alive

            await harness.until(is_dead)
            alive = next(iter(await harness.call(client.get_workers)))
            assert (alive.id, alive.alive, alive.last_seen) == ("slow", True, slow.last_seen)

    @case
    @requires("processes")
    async def test_a_worker_that_is_told_to_end_is_gone_with_its_process(self, harness: Harness) -> None:
        client = harness.client()
        with _process(harness, "ann") as process:
            await self._until_queues(harness, client, "ann", QUEUE)
            process.send_signal(signal.SIGTERM)
            process.wait()
        assert await listed(harness, client) == {}


@contextmanager
def _process(harness: Harness, worker: str, heartbeat: float = HEARTBEAT) -> Generator[subprocess.Popen[bytes]]:
    """Run a worker in its own process."""
    code = PROCESS.format(queue=QUEUE, source=harness.source, worker=worker, heartbeat=heartbeat)
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            yield process
        finally:
            process.kill()
