"""Storage contract: waiting for the result of one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgjq.errors import StorageError
from pgjq.job import NewJob
from pgjq.job_settings import settings
from pgjq.options import Submission
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness

if TYPE_CHECKING:
    from pgjq.job import EnqueueResult
    from pgjq.storage.base import Answer, ResultWaiter


# Longer than any test may take, so that only a notification explains a result.
PATIENCE = 3600.0


def submission(job_id: str, **options: Any) -> Submission:
    return Submission(job_id, b"1", settings(NewJob(job_id, None, **options)))


async def result_waiter(harness: Harness, job_id: str, **options: Any) -> tuple[ResultWaiter, EnqueueResult]:
    """Create a waiter, and enqueue its job."""
    waiter = await harness.ops.result_waiter(QUEUE, job_id)
    return waiter, await waiter.enqueue(submission(job_id, **options))


async def answer(waiter: ResultWaiter, timeout: float = PATIENCE) -> Answer:
    """Wait for the result, which must come, and close the waiter."""
    found = await waiter.answer(timeout)
    await waiter.close()
    assert found is not None
    return found


class Waiting(Cases):
    """Waiting for the result of one job."""

    @case
    async def test_a_waiter_gets_the_result(self, harness: Harness) -> None:
        waiter, enqueued = await result_waiter(harness, "a")
        assert enqueued.status == "queued"
        await harness.settle(await harness.claim_one(), Completed(b'"done"'))
        told = await answer(waiter)
        assert (told.state, told.result, told.error, told.attempts) == ("completed", b'"done"', None, 1)

    @case
    async def test_a_waiter_is_woken_while_it_waits(self, harness: Harness) -> None:
        waiters = [(await result_waiter(harness, f"{n}"))[0] for n in range(3)]

        async def wait_or_work(n: int) -> bytes | None:
            if n < 3:
                return (await answer(waiters[n])).result
            for job in await harness.claim():
                await harness.settle(job, Completed(job.lease.id.encode()))
            return None

        assert await harness.together(4, wait_or_work) == [b"0", b"1", b"2", None]

    @case
    async def test_a_result_of_a_megabyte_arrives(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a")
        await harness.settle(await harness.claim_one(), Completed(b"x" * 1_000_000))
        assert (await answer(waiter)).result == b"x" * 1_000_000

    @case
    async def test_no_result_is_no_expired_result(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a")
        await harness.settle(await harness.claim_one(), Completed(None))
        told = await answer(waiter)
        assert (told.state, told.result, told.expired) == ("completed", None, False)

    @case
    async def test_a_result_that_expired_unread_says_so(self, harness: Harness) -> None:
        """The waiter that added the job may get the result with the end; one that joined reads it."""
        await harness.enqueue("a", result_ttl=10)
        waiter, _ = await result_waiter(harness, "a")
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        harness.clock.advance(10)
        told = await answer(waiter)
        assert (told.state, told.result, told.expired) == ("completed", None, True)

    @case
    async def test_a_cached_result_is_in_the_enqueues_answer(self, harness: Harness) -> None:
        await harness.complete("a", b'"cached"')
        waiter, enqueued = await result_waiter(harness, "a")
        assert (enqueued.status, enqueued.result) == ("completed", b'"cached"')
        await waiter.close()

    @case
    async def test_retries_and_stalls_do_not_end_a_wait(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a", max_attempts=4)
        await harness.settle(await harness.claim_one(), Failing(BOOM))
        assert (await waiter.answer(0.01)).state == "failing"  # type: ignore[union-attr]
        await harness.settle(await harness.claim_one(), Released())
        await harness.claim_one(lease=10, heartbeat=3)
        harness.clock.advance(10)
        await harness.ops.reap()
        assert (await waiter.answer(0.01)).state == "failing"  # type: ignore[union-attr]
        joined, enqueued = await result_waiter(harness, "a")
        assert (enqueued.status, enqueued.existing_state) == ("duplicate", "failing")

        async def wait_or_work(n: int) -> str | None:
            if n < 2:
                return (await answer((waiter, joined)[n])).state
            return await harness.settle(await harness.claim_one(), Completed(b"1"))

        assert await harness.together(3, wait_or_work) == ["completed"] * 3

    @case
    async def test_a_failure_comes_with_its_error(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a", max_attempts=1)
        await harness.settle(await harness.claim_one(), Failed(BOOM))
        told = await answer(waiter)
        assert (told.state, told.error, told.attempts, told.max_attempts) == ("failed", BOOM, 1, 1)

    @case
    async def test_a_job_that_a_reaper_failed_is_answered(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a", max_attempts=1)
        await harness.claim_one(lease=10, heartbeat=3)
        harness.clock.advance(10)
        await harness.ops.reap()
        assert (await answer(waiter)).state == "failed"

    @case
    async def test_a_cancelled_job_is_answered(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a")
        await harness.ops.cancel(QUEUE, "a")
        assert (await answer(waiter)).state == "cancelled"
        waiter, _ = await result_waiter(harness, "b")
        job = await harness.claim_one()
        await harness.ops.cancel(QUEUE, "b", active=True)
        await harness.settle(job, Cancelled())
        assert (await answer(waiter)).state == "cancelled"

    @case
    async def test_a_deleted_job_is_gone(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a")
        await harness.ops.delete(QUEUE, ["a"])
        assert await waiter.answer(PATIENCE) is None
        await waiter.close()

    @case
    async def test_a_job_that_waited_past_its_retention_is_gone(self, harness: Harness) -> None:
        waiter, _ = await result_waiter(harness, "a", retention_seconds=10)
        harness.clock.advance(11)
        assert await harness.ops.prune() == 1
        assert await waiter.answer(PATIENCE) is None
        await waiter.close()

    @case
    async def test_a_record_that_is_pruned_unread_ends_the_wait(self, harness: Harness) -> None:
        """The notification comes at the end, with the result; or the waiter finds the record gone."""
        waiter, _ = await result_waiter(harness, "a", result_ttl=10, delete_after_seconds=10)
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        harness.clock.advance(11)
        assert await harness.ops.prune() == 1
        told = await waiter.answer(PATIENCE)
        assert told is None or told.result == b"1"
        await waiter.close()

    @case
    @pytest.mark.parametrize("cancelled", [False, True])
    async def test_a_job_that_is_retried_before_its_waiter_looks_is_answered(
        self, harness: Harness, cancelled: bool
    ) -> None:
        """The waiter sees the first end or the second, and always one of them."""
        waiter, _ = await result_waiter(harness, "a")
        if cancelled:
            await harness.ops.cancel(QUEUE, "a")
        else:
            await harness.settle(await harness.claim_one(), Failed(BOOM))
        await harness.ops.retry(QUEUE, "a")
        looked = await waiter.answer(0.01)
        assert looked is not None
        if looked.state == "queued":
            await harness.settle(await harness.claim_one(), Completed(b"1"))
            assert (await answer(waiter)).result == b"1"
        else:
            assert looked.state == ("cancelled" if cancelled else "failed")
            await waiter.close()

    @case
    async def test_a_waiter_joins_a_job_that_waits_or_runs(self, harness: Harness) -> None:
        await harness.enqueue("a")
        first, enqueued = await result_waiter(harness, "a")
        assert (enqueued.status, enqueued.existing_state) == ("duplicate", "queued")
        job = await harness.claim_one()
        second, enqueued = await result_waiter(harness, "a")
        assert (enqueued.status, enqueued.existing_state) == ("duplicate", "processing")
        await harness.settle(job, Completed(b"1"))
        assert [(await answer(w)).result for w in (first, second)] == [b"1", b"1"]

    @case
    async def test_a_waiter_that_gives_up_takes_nothing_from_another(self, harness: Harness) -> None:
        patient, _ = await result_waiter(harness, "a")
        hasty, _ = await result_waiter(harness, "a")
        assert (await answer(hasty, 0.01)).state == "queued"
        await hasty.close()
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        assert (await answer(patient)).result == b"1"

    @case
    async def test_a_failed_job_that_counts_as_duplicate_is_answered_at_once(self, harness: Harness) -> None:
        await harness.fail("a")
        waiter, enqueued = await result_waiter(harness, "a", on_failed="duplicate")
        assert (enqueued.status, enqueued.existing_state) == ("duplicate", "failed")
        assert (await answer(waiter)).error == BOOM

    @case
    async def test_an_id_that_is_another_job_by_now_does_not_confuse_a_waiter(self, harness: Harness) -> None:
        old, _ = await result_waiter(harness, "a")
        await harness.ops.cancel(QUEUE, "a")
        new, enqueued = await result_waiter(harness, "a")
        assert enqueued.status == "queued"
        await harness.settle(await harness.claim_one(), Completed(b"2"))
        assert (await answer(old)).state == "cancelled"
        assert (await answer(new)).result == b"2"

    @case
    async def test_word_of_an_earlier_job_does_not_end_a_wait(self, harness: Harness) -> None:
        await (await result_waiter(harness, "a"))[0].close()
        waiter = await harness.ops.result_waiter(QUEUE, "a")
        await harness.settle(await harness.claim_one(), Failed(BOOM))
        assert (await waiter.enqueue(submission("a"))).status == "queued"
        assert (await waiter.answer(0.2)).state == "queued"  # type: ignore[union-attr]
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        assert (await answer(waiter)).result == b"1"

    @case
    async def test_closing_the_storage_ends_every_wait(self, harness: Harness) -> None:
        waiters = [(await result_waiter(harness, f"{n}"))[0] for n in range(2)]

        async def wait_or_close(n: int) -> None:
            if n == 2:
                harness.storage.close()
                return
            with pytest.raises(StorageError, match="closed"):
                await waiters[n].answer(PATIENCE)
            await waiters[n].close()

        await harness.together(3, wait_or_close)
