"""Storage contract: cancel, retry, delete, find, count, prune."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.options import JobFilter
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness


class Managing(Cases):
    """Cancel, retry, delete, find, count, prune."""

    @case
    @pytest.mark.parametrize("active", [False, True])
    async def test_a_waiting_job_is_cancelled_and_never_runs(self, harness: Harness, active: bool) -> None:
        await harness.enqueue("a")
        assert (await harness.ops.cancel(QUEUE, "a", active=active)).status == "cancelled"
        assert await harness.state("a") == "cancelled"
        assert await harness.claim() == []

    @case
    async def test_a_failing_job_is_cancelled(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=10))
        assert (await harness.ops.cancel(QUEUE, "a")).status == "cancelled"
        harness.clock.advance(10)
        assert await harness.claim() == []

    @case
    async def test_cancelling_what_is_not_there_says_so(self, harness: Harness) -> None:
        assert (await harness.ops.cancel(QUEUE, "missing")).status == "not_found"

    @case
    async def test_cancelling_what_is_over_says_how_it_ended(self, harness: Harness) -> None:
        await harness.complete("done")
        await harness.fail("broken")
        assert (await harness.ops.cancel(QUEUE, "done")).status == "completed"
        assert (await harness.ops.cancel(QUEUE, "broken")).status == "failed"

    @case
    async def test_a_running_job_is_left_alone(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()
        assert (await harness.ops.cancel(QUEUE, "a")).status == "processing"
        assert await harness.settle(job, Completed(b"1")) == "completed"

    @case
    @pytest.mark.parametrize(
        "outcome", [Completed(b"1"), Failed(BOOM), Failing(BOOM), Released(), Snoozed(1), Cancelled()]
    )
    async def test_a_running_job_asked_to_end_ends_as_cancelled(self, harness: Harness, outcome: Any) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()
        assert (await harness.ops.cancel(QUEUE, "a", active=True)).status == "processing"
        assert await harness.settle(job, outcome) == "cancelled"
        status = await harness.status("a")
        assert (status.state, status.result, status.error) == ("cancelled", None, None)

    @case
    async def test_cancel_and_claim_race_and_one_of_them_wins(self, harness: Harness) -> None:
        for round_ in range(10):
            job_id = f"a{round_}"
            await harness.enqueue(job_id)

            async def race(n: int, job_id: str = job_id) -> str:
                if n % 2:
                    return (await harness.ops.cancel(QUEUE, job_id)).status
                return "claimed" if await harness.claim() else "nothing"

            outcomes = await harness.together(4, race)
            assert ("cancelled" in outcomes) != ("claimed" in outcomes)

    @case
    async def test_retry_gives_a_failed_job_all_its_attempts_again(self, harness: Harness) -> None:
        old = await harness.fail("a", max_attempts=1)
        status = await harness.ops.retry(QUEUE, "a")
        assert status is not None
        assert (status.state, status.attempts, status.error) == ("queued", 0, None)
        job = await harness.claim_one()
        assert (job.attempts, job.max_attempts) == (1, 1)
        assert job.lease.number > old.lease.number
        assert await harness.settle(old, Completed(b"late")) is None

    @case
    async def test_retry_answers_with_what_it_did_however_fast_the_job_completes(self, harness: Harness) -> None:
        for round_ in range(20):
            await harness.fail(job_id := f"a{round_}")

            async def race(n: int, job_id: str = job_id) -> str | None:
                if n == 0:
                    status = await harness.ops.retry(QUEUE, job_id)
                    return status and status.state
                while not (taken := await harness.claim()):
                    await harness.ops.wait_for_work([QUEUE], 1)
                return await harness.settle(taken[0], Completed(b"1"))

            assert await harness.together(2, race) == ["queued", "completed"]

    @case
    async def test_retry_brings_a_cancelled_job_back(self, harness: Harness) -> None:
        await harness.enqueue("a")
        await harness.ops.cancel(QUEUE, "a")
        status = await harness.ops.retry(QUEUE, "a")
        assert status is not None
        assert status.state == "queued"
        assert len(await harness.claim()) == 1

    @case
    async def test_retry_leaves_other_jobs_as_they_are(self, harness: Harness) -> None:
        await harness.complete("done")
        status = await harness.ops.retry(QUEUE, "done")
        assert status is not None
        assert status.state == "completed"
        assert await harness.ops.retry(QUEUE, "missing") is None
        assert await harness.claim() == []

    @case
    async def test_many_jobs_are_cancelled_and_retried_in_one_call_that_counts_those_it_changed(
        self, harness: Harness
    ) -> None:
        await harness.complete("done")
        await harness.enqueue("running")
        await harness.claim_one()
        await harness.enqueue_all("a", "b")
        ids = ["done", "running", "a", "b", "missing", "b"]
        assert await harness.ops.retry_many(QUEUE, ids) == 0
        assert [await harness.ops.cancel_many(QUEUE, ids) for _ in range(2)] == [2, 0]
        assert [await harness.ops.retry_many(QUEUE, ids) for _ in range(2)] == [2, 0]
        assert sorted([job.lease.id for job in await harness.claim()]) == ["a", "b"]
        assert (await harness.ops.cancel_many(QUEUE, []), await harness.ops.retry_many(QUEUE, [])) == (0, 0)

    @case
    async def test_a_deleted_job_is_forgotten(self, harness: Harness) -> None:
        await harness.complete("done")
        await harness.enqueue("waiting")
        assert await harness.ops.delete(QUEUE, ["done", "waiting", "missing"]) == 2
        assert await harness.ops.get(QUEUE, ["done", "waiting"]) == {}
        assert await harness.claim() == []
        assert (await harness.enqueue("done")).status == "queued"

    @case
    async def test_a_running_job_is_not_deleted(self, harness: Harness) -> None:
        await harness.enqueue("a")
        job = await harness.claim_one()
        assert await harness.ops.delete(QUEUE, ["a"]) == 0
        assert await harness.settle(job, Completed(b"1")) == "completed"

    @case
    async def test_unknown_ids_are_not_in_the_answer(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert set(await harness.ops.get(QUEUE, ["a", "b"])) == {"a"}
        assert await harness.ops.get("missing", ["a"]) == {}

    @case
    async def test_jobs_are_found_by_state_queue_and_key(self, harness: Harness) -> None:
        await harness.complete("done")
        await harness.enqueue("a", singleton_key="k")
        await harness.enqueue("b", queue="other")
        assert await self._found(harness, JobFilter(queue=QUEUE)) == ["done", "a"]
        assert await self._found(harness, JobFilter(state="queued")) == ["a", "b"]
        assert await self._found(harness, JobFilter(singleton_key="k")) == ["a"]
        assert await self._found(harness, JobFilter(queue="missing")) == []

    @case
    async def test_jobs_are_found_by_age(self, harness: Harness) -> None:
        await harness.enqueue("old")
        harness.clock.advance(10)
        await harness.enqueue("new")
        border = (await harness.status("new")).created_at
        assert await self._found(harness, JobFilter(created_before=border)) == ["old"]
        assert await self._found(harness, JobFilter(created_after=border)) == ["new"]

    @case
    async def test_jobs_are_found_page_by_page(self, harness: Harness) -> None:
        ids = [f"{n}" for n in range(7)]
        await harness.enqueue_all(*ids)
        found: list[str] = []
        after: int | None = 0
        while after is not None:
            page, after = await harness.ops.find(JobFilter(after=after, limit=3))
            found += [status.id for status in page]
        assert found == ids

    async def _found(self, harness: Harness, wanted: JobFilter) -> list[str]:
        page, following = await harness.ops.find(wanted)
        assert following is None
        return [status.id for status in page]

    @case
    async def test_an_id_that_was_used_again_is_one_job(self, harness: Harness) -> None:
        await harness.fail("a")
        await harness.enqueue("a")
        assert await self._found(harness, JobFilter()) == ["a"]
        stats = await harness.ops.stats(QUEUE)
        assert (stats.total, stats.failed, stats.queued) == (1, 0, 1)

    @case
    async def test_stats_count_every_state_once(self, harness: Harness) -> None:
        await harness.complete("completed")
        await harness.fail("failed")
        await harness.enqueue("failing")
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=100))
        await harness.enqueue("cancelled")
        await harness.ops.cancel(QUEUE, "cancelled")
        await harness.enqueue("processing")
        await harness.claim_one()
        await harness.enqueue("deferred", delay=100)
        await harness.enqueue("ready")
        harness.clock.advance(30)
        stats = await harness.ops.stats(QUEUE)
        assert (stats.name, stats.total) == (QUEUE, 7)
        assert (stats.queued, stats.ready, stats.deferred) == (2, 1, 1)
        assert (stats.processing, stats.failing, stats.completed) == (1, 1, 1)
        assert (stats.failed, stats.cancelled) == (1, 1)
        assert stats.oldest_ready_age == pytest.approx(30)

    @case
    async def test_stats_of_an_unknown_queue_are_zero(self, harness: Harness) -> None:
        stats = await harness.ops.stats("missing")
        assert (stats.total, stats.oldest_ready_age) == (0, None)

    @case
    async def test_records_are_pruned_when_their_time_has_passed(self, harness: Harness) -> None:
        await harness.complete("default")
        await harness.complete("short", delete_after_seconds=10, result_ttl=10)
        await harness.complete("kept", delete_after_seconds=0)
        assert await harness.ops.prune() == 0
        harness.clock.advance(10)
        assert await harness.ops.prune() == 1
        assert set(await harness.ops.get(QUEUE, ["default", "short", "kept"])) == {"default", "kept"}
        harness.clock.advance(7 * 86400 - 11)
        assert await harness.ops.prune() == 0
        harness.clock.advance(1)
        assert await harness.ops.prune() == 1
        harness.clock.advance(1000 * 86400)
        assert await harness.ops.prune() == 0
        assert set(await harness.ops.get(QUEUE, ["default", "short", "kept"])) == {"kept"}

    @case
    async def test_a_record_stays_as_long_as_its_result_can_be_read(self, harness: Harness) -> None:
        await harness.complete("a", delete_after_seconds=1, result_ttl=10)
        harness.clock.advance(9)
        assert await harness.ops.prune() == 0
        assert (await harness.enqueue("a")).status == "completed"
        harness.clock.advance(1)
        assert await harness.ops.prune() == 1

    @case
    async def test_jobs_that_wait_too_long_are_pruned_but_not_while_they_run(self, harness: Harness) -> None:
        await harness.enqueue("running", retention_seconds=10)
        await harness.claim_one(lease=None, heartbeat=None, expire=None)
        await harness.enqueue("short", retention_seconds=10)
        await harness.enqueue("default")
        harness.clock.advance(10)
        assert await harness.ops.prune() == 1
        harness.clock.advance(14 * 86400 - 11)
        assert await harness.ops.prune() == 0
        harness.clock.advance(1)
        assert await harness.ops.prune() == 1
        assert set(await harness.ops.get(QUEUE, ["running", "short", "default"])) == {"running"}

    @case
    async def test_a_job_that_is_failing_for_too_long_is_pruned_too(self, harness: Harness) -> None:
        await harness.enqueue("a", retention_seconds=10)
        await harness.settle(await harness.claim_one(), Failing(BOOM, delay=5))
        harness.clock.advance(14)
        assert await harness.ops.prune() == 0
        harness.clock.advance(1)
        assert await harness.ops.prune() == 1
        assert (await harness.enqueue("a")).status == "queued"

    @case
    async def test_pruning_is_done_in_batches_and_frees_the_id(self, harness: Harness) -> None:
        for n in range(5):
            await harness.complete(str(n), delete_after_seconds=1, result_ttl=1)
        harness.clock.advance(1)
        assert [await harness.ops.prune(limit=2) for _ in range(4)] == [2, 2, 1, 0]
        assert (await harness.enqueue("0")).status == "queued"
