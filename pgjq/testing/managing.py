"""Storage contract: cancel, retry, delete, find, count, prune."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.options import JobFilter
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import Cases, case


class Managing(Cases):
    """Cancel, retry, delete, find, count, prune."""

    @case
    @pytest.mark.parametrize("active", [False, True])
    async def test_a_waiting_job_is_cancelled_and_never_runs(self, bench: Bench, active: bool) -> None:
        await bench.enqueue("a")
        assert (await bench.ops.cancel(QUEUE, "a", active=active)).status == "cancelled"
        assert await bench.state("a") == "cancelled"
        assert await bench.claim() == []

    @case
    async def test_a_failing_job_is_cancelled(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=10))
        assert (await bench.ops.cancel(QUEUE, "a")).status == "cancelled"
        bench.clock.advance(10)
        assert await bench.claim() == []

    @case
    async def test_cancelling_what_is_not_there_says_so(self, bench: Bench) -> None:
        assert (await bench.ops.cancel(QUEUE, "missing")).status == "not_found"

    @case
    async def test_cancelling_what_is_over_says_how_it_ended(self, bench: Bench) -> None:
        await bench.complete("done")
        await bench.fail("broken")
        assert (await bench.ops.cancel(QUEUE, "done")).status == "completed"
        assert (await bench.ops.cancel(QUEUE, "broken")).status == "failed"

    @case
    async def test_a_running_job_is_left_alone(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        assert (await bench.ops.cancel(QUEUE, "a")).status == "processing"
        assert await bench.settle(job, Completed(b"1")) == "completed"

    @case
    @pytest.mark.parametrize(
        "outcome", [Completed(b"1"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1), Cancelled()]
    )
    async def test_a_running_job_asked_to_end_ends_as_cancelled(self, bench: Bench, outcome: Any) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        assert (await bench.ops.cancel(QUEUE, "a", active=True)).status == "processing"
        assert await bench.settle(job, outcome) == "cancelled"
        status = await bench.status("a")
        assert (status.state, status.result, status.error) == ("cancelled", None, None)

    @case
    async def test_cancel_and_claim_race_and_one_of_them_wins(self, bench: Bench) -> None:
        for round_ in range(10):
            job_id = f"a{round_}"
            await bench.enqueue(job_id)

            async def race(n: int, job_id: str = job_id) -> str:
                if n % 2:
                    return (await bench.ops.cancel(QUEUE, job_id)).status
                return "claimed" if await bench.claim() else "nothing"

            outcomes = await bench.together(4, race)
            assert ("cancelled" in outcomes) != ("claimed" in outcomes)

    @case
    async def test_retry_gives_a_failed_job_all_its_attempts_again(self, bench: Bench) -> None:
        old = await bench.fail("a", max_attempts=1)
        status = await bench.ops.retry(QUEUE, "a")
        assert status is not None
        assert (status.state, status.attempts, status.error) == ("queued", 0, None)
        job = await bench.claim_one()
        assert (job.attempts, job.max_attempts) == (1, 1)
        assert job.lease.number > old.lease.number
        assert await bench.settle(old, Completed(b"late")) is None

    @case
    async def test_retry_answers_with_what_it_did_however_fast_the_job_completes(self, bench: Bench) -> None:
        for round_ in range(20):
            await bench.fail(job_id := f"a{round_}")

            async def race(n: int, job_id: str = job_id) -> str | None:
                if n == 0:
                    status = await bench.ops.retry(QUEUE, job_id)
                    return status and status.state
                while not (taken := await bench.claim()):
                    await bench.ops.wait_for_work([QUEUE], 1)
                return await bench.settle(taken[0], Completed(b"1"))

            assert await bench.together(2, race) == ["queued", "completed"]

    @case
    async def test_retry_brings_a_cancelled_job_back(self, bench: Bench) -> None:
        await bench.enqueue("a")
        await bench.ops.cancel(QUEUE, "a")
        status = await bench.ops.retry(QUEUE, "a")
        assert status is not None
        assert status.state == "queued"
        assert len(await bench.claim()) == 1

    @case
    async def test_retry_leaves_other_jobs_as_they_are(self, bench: Bench) -> None:
        await bench.complete("done")
        status = await bench.ops.retry(QUEUE, "done")
        assert status is not None
        assert status.state == "completed"
        assert await bench.ops.retry(QUEUE, "missing") is None
        assert await bench.claim() == []

    @case
    async def test_many_jobs_are_cancelled_and_retried_in_one_call_that_counts_those_it_changed(
        self, bench: Bench
    ) -> None:
        await bench.complete("done")
        await bench.enqueue("running")
        await bench.claim_one()
        await bench.enqueue_all("a", "b")
        ids = ["done", "running", "a", "b", "missing", "b"]
        assert await bench.ops.retry_many(QUEUE, ids) == 0
        assert [await bench.ops.cancel_many(QUEUE, ids) for _ in range(2)] == [2, 0]
        assert [await bench.ops.retry_many(QUEUE, ids) for _ in range(2)] == [2, 0]
        assert sorted([job.lease.id for job in await bench.claim()]) == ["a", "b"]
        assert (await bench.ops.cancel_many(QUEUE, []), await bench.ops.retry_many(QUEUE, [])) == (0, 0)

    @case
    async def test_a_deleted_job_is_forgotten(self, bench: Bench) -> None:
        await bench.complete("done")
        await bench.enqueue("waiting")
        assert await bench.ops.delete(QUEUE, ["done", "waiting", "missing"]) == 2
        assert await bench.ops.get(QUEUE, ["done", "waiting"]) == {}
        assert await bench.claim() == []
        assert (await bench.enqueue("done")).status == "queued"

    @case
    async def test_a_running_job_is_not_deleted(self, bench: Bench) -> None:
        await bench.enqueue("a")
        job = await bench.claim_one()
        assert await bench.ops.delete(QUEUE, ["a"]) == 0
        assert await bench.settle(job, Completed(b"1")) == "completed"

    @case
    async def test_unknown_ids_are_not_in_the_answer(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert set(await bench.ops.get(QUEUE, ["a", "b"])) == {"a"}
        assert await bench.ops.get("missing", ["a"]) == {}

    @case
    async def test_jobs_are_found_by_state_queue_and_key(self, bench: Bench) -> None:
        await bench.complete("done")
        await bench.enqueue("a", singleton_key="k")
        await bench.enqueue("b", queue="other")
        assert await self._found(bench, JobFilter(queue=QUEUE)) == ["done", "a"]
        assert await self._found(bench, JobFilter(state="queued")) == ["a", "b"]
        assert await self._found(bench, JobFilter(singleton_key="k")) == ["a"]
        assert await self._found(bench, JobFilter(queue="missing")) == []

    @case
    async def test_jobs_are_found_by_age(self, bench: Bench) -> None:
        await bench.enqueue("old")
        bench.clock.advance(10)
        await bench.enqueue("new")
        border = (await bench.status("new")).created_at
        assert await self._found(bench, JobFilter(created_before=border)) == ["old"]
        assert await self._found(bench, JobFilter(created_after=border)) == ["new"]

    @case
    async def test_jobs_are_found_page_by_page(self, bench: Bench) -> None:
        ids = [f"{n}" for n in range(7)]
        await bench.enqueue_all(*ids)
        found: list[str] = []
        after: int | None = 0
        while after is not None:
            page, after = await bench.ops.find(JobFilter(after=after, limit=3))
            found += [status.id for status in page]
        assert found == ids

    async def _found(self, bench: Bench, wanted: JobFilter) -> list[str]:
        page, following = await bench.ops.find(wanted)
        assert following is None
        return [status.id for status in page]

    @case
    async def test_an_id_that_was_used_again_is_one_job(self, bench: Bench) -> None:
        await bench.fail("a")
        await bench.enqueue("a")
        assert await self._found(bench, JobFilter()) == ["a"]
        stats = await bench.ops.stats(QUEUE)
        assert (stats.total, stats.failed, stats.queued) == (1, 0, 1)

    @case
    async def test_stats_count_every_state_once(self, bench: Bench) -> None:
        await bench.complete("completed")
        await bench.fail("failed")
        await bench.enqueue("failing")
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=100))
        await bench.enqueue("cancelled")
        await bench.ops.cancel(QUEUE, "cancelled")
        await bench.enqueue("processing")
        await bench.claim_one()
        await bench.enqueue("deferred", delay=100)
        await bench.enqueue("ready")
        bench.clock.advance(30)
        stats = await bench.ops.stats(QUEUE)
        assert (stats.name, stats.total) == (QUEUE, 7)
        assert (stats.queued, stats.ready, stats.deferred) == (2, 1, 1)
        assert (stats.processing, stats.failing, stats.completed) == (1, 1, 1)
        assert (stats.failed, stats.cancelled) == (1, 1)
        assert stats.oldest_ready_age == pytest.approx(30)

    @case
    async def test_stats_of_an_unknown_queue_are_zero(self, bench: Bench) -> None:
        stats = await bench.ops.stats("missing")
        assert (stats.total, stats.oldest_ready_age) == (0, None)

    @case
    async def test_records_are_pruned_when_their_time_has_passed(self, bench: Bench) -> None:
        await bench.complete("default")
        await bench.complete("short", delete_after_seconds=10, result_ttl=10)
        await bench.complete("kept", delete_after_seconds=0)
        assert await bench.ops.prune() == 0
        bench.clock.advance(10)
        assert await bench.ops.prune() == 1
        assert set(await bench.ops.get(QUEUE, ["default", "short", "kept"])) == {"default", "kept"}
        bench.clock.advance(7 * 86400 - 11)
        assert await bench.ops.prune() == 0
        bench.clock.advance(1)
        assert await bench.ops.prune() == 1
        bench.clock.advance(1000 * 86400)
        assert await bench.ops.prune() == 0
        assert set(await bench.ops.get(QUEUE, ["default", "short", "kept"])) == {"kept"}

    @case
    async def test_a_record_stays_as_long_as_its_result_can_be_read(self, bench: Bench) -> None:
        await bench.complete("a", delete_after_seconds=1, result_ttl=10)
        bench.clock.advance(9)
        assert await bench.ops.prune() == 0
        assert (await bench.enqueue("a")).status == "completed"
        bench.clock.advance(1)
        assert await bench.ops.prune() == 1

    @case
    async def test_jobs_that_wait_too_long_are_pruned_but_not_while_they_run(self, bench: Bench) -> None:
        await bench.enqueue("running", retention_seconds=10)
        await bench.claim_one(lease=None, heartbeat=None, expire=None)
        await bench.enqueue("short", retention_seconds=10)
        await bench.enqueue("default")
        bench.clock.advance(10)
        assert await bench.ops.prune() == 1
        bench.clock.advance(14 * 86400 - 11)
        assert await bench.ops.prune() == 0
        bench.clock.advance(1)
        assert await bench.ops.prune() == 1
        assert set(await bench.ops.get(QUEUE, ["running", "short", "default"])) == {"running"}

    @case
    async def test_a_job_that_is_failing_for_too_long_is_pruned_too(self, bench: Bench) -> None:
        await bench.enqueue("a", retention_seconds=10)
        await bench.settle(await bench.claim_one(), Failing(BOOM, delay=5))
        bench.clock.advance(14)
        assert await bench.ops.prune() == 0
        bench.clock.advance(1)
        assert await bench.ops.prune() == 1
        assert (await bench.enqueue("a")).status == "queued"

    @case
    async def test_pruning_is_done_in_batches_and_frees_the_id(self, bench: Bench) -> None:
        for n in range(5):
            await bench.complete(str(n), delete_after_seconds=1, result_ttl=1)
        bench.clock.advance(1)
        assert [await bench.ops.prune(limit=2) for _ in range(4)] == [2, 2, 1, 0]
        assert (await bench.enqueue("0")).status == "queued"
