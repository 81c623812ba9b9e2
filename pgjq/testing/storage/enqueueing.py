"""Storage contract: ids, deduplication and order."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.errors import UnsupportedError
from pgjq.options import Settings, Submission
from pgjq.outcome import Completed, Failing
from pgjq.testing.storage.cases import Cases, case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness

TWENTY = 20


class Enqueueing(Cases):
    """Ids, deduplication and order."""

    @case
    async def test_a_free_id_is_queued(self, harness: Harness) -> None:
        result = await harness.enqueue("a")
        assert (result.status, result.id, result.existing_state) == ("queued", "a", None)
        assert await harness.state("a") == "queued"

    @case
    async def test_an_id_is_taken_while_its_job_lives(self, harness: Harness) -> None:
        await harness.enqueue("a")
        assert (await harness.enqueue("a")).existing_state == "queued"
        job = await harness.claim_one()
        assert (await harness.enqueue("a")).existing_state == "processing"
        await harness.settle(job, Failing(BOOM, delay=60))
        again = await harness.enqueue("a")
        assert (again.status, again.existing_state) == ("duplicate", "failing")

    @case
    async def test_a_completed_id_answers_with_its_result_until_that_expires(self, harness: Harness) -> None:
        await harness.complete("a", b'"first"', result_ttl=60)
        harness.clock.advance(59)
        again = await harness.enqueue("a")
        assert (again.status, again.existing_state, again.result) == ("completed", "completed", b'"first"')
        harness.clock.advance(1)
        assert (await harness.enqueue("a", b"2")).status == "queued"
        assert (await harness.claim_one()).payload == b"2"

    @case
    async def test_a_failed_id_is_enqueued_as_a_new_run(self, harness: Harness) -> None:
        await harness.fail("a")
        assert (await harness.enqueue("a", b"2")).status == "queued"
        job = await harness.claim_one()
        assert (job.payload, job.attempts) == (b"2", 1)

    @case
    async def test_a_failed_id_can_be_asked_to_count_as_taken(self, harness: Harness) -> None:
        await harness.fail("a", result_ttl=60)
        again = await harness.enqueue("a", on_failed="duplicate")
        assert (again.status, again.existing_state) == ("duplicate", "failed")
        harness.clock.advance(60)
        assert (await harness.enqueue("a", on_failed="duplicate")).status == "queued"

    @case
    async def test_a_cancelled_id_is_free_at_once_and_only_the_newer_payload_runs(self, harness: Harness) -> None:
        await harness.enqueue("a", b"old")
        await harness.ops.cancel(QUEUE, "a")
        assert (await harness.enqueue("a", b"new")).status == "queued"
        assert [job.payload for job in await harness.claim()] == [b"new"]

    @case
    async def test_the_first_accepted_enqueue_settles_the_ttl(self, harness: Harness) -> None:
        await harness.enqueue("a", result_ttl=10)
        await harness.enqueue("a", result_ttl=1000)
        await harness.settle(await harness.claim_one(), Completed(b"1"))
        harness.clock.advance(10)
        assert (await harness.status("a")).result is None

    @case
    async def test_an_id_twice_in_one_batch_is_queued_once(self, harness: Harness) -> None:
        results = await harness.enqueue_all("b", "a", "b", "c", "a")
        assert [r.status for r in results] == ["queued", "queued", "duplicate", "queued", "duplicate"]
        assert [r.id for r in results] == ["b", "a", "b", "c", "a"]
        assert [job.lease.id for job in await harness.claim()] == ["b", "a", "c"]

    @case
    async def test_a_batch_mixes_free_and_taken_ids(self, harness: Harness) -> None:
        await harness.complete("done", b"7")
        await harness.enqueue("queued")
        results = await harness.enqueue_all("new", "done", "queued", "newer")
        assert [r.status for r in results] == ["queued", "completed", "duplicate", "queued"]
        assert results[1].result == b"7"

    @case
    async def test_queues_do_not_share_ids(self, harness: Harness) -> None:
        await harness.enqueue("a", queue="one")
        assert (await harness.enqueue("a", queue="two")).status == "queued"
        assert [job.lease.queue for job in await harness.claim(queue="two")] == ["two"]

    @case
    async def test_any_text_can_be_an_id(self, harness: Harness) -> None:
        ids = ["a:b", "../../etc", "a b", "ü€😀", '"{}\\,', "NULL", "%s", "'; drop table job; --", "x" * 512, "\t\n"]
        assert all(r.status == "queued" for r in await harness.enqueue_all(*ids))
        assert [job.lease.id for job in await harness.claim(limit=20)] == ids
        assert set(await harness.ops.get(QUEUE, ids)) == set(ids)

    @case
    async def test_any_bytes_can_be_a_payload(self, harness: Harness) -> None:
        payloads = [b"", b"\0\xff\\\"'", bytes(range(256)), b"x" * 1_000_000]
        for n, payload in enumerate(payloads):
            await harness.enqueue(str(n), payload)
        assert [job.payload for job in await harness.claim()] == payloads

    @case
    async def test_made_ids_are_queued_in_order(self, harness: Harness) -> None:
        usual = Settings()
        jobs = [Submission(str(n), b'{"n": "\\t"}', usual) for n in range(300)]
        results = await harness.ops.enqueue(QUEUE, jobs, generated_ids=True)
        assert {r.status for r in results} == {"queued"}
        assert [job.lease.id for job in await harness.claim(limit=300)] == [str(n) for n in range(300)]

    @case
    async def test_no_jobs_are_no_trouble(self, harness: Harness) -> None:
        assert await harness.ops.enqueue(QUEUE, []) == []

    @case
    async def test_a_connection_is_refused_by_a_storage_without_transactions(self, harness: Harness) -> None:
        if not harness.storage.capabilities.transactions:
            with pytest.raises(UnsupportedError):
                await harness.ops.enqueue(QUEUE, [], connection=object())

    @case
    async def test_twenty_callers_with_one_id_queue_it_once(self, harness: Harness) -> None:
        results = await harness.together(TWENTY, lambda _: harness.enqueue("a"))
        assert sorted(r.status for r in results) == ["duplicate"] * (TWENTY - 1) + ["queued"]

    @case
    async def test_twenty_callers_with_an_expired_id_queue_it_once(self, harness: Harness) -> None:
        await harness.complete("a", result_ttl=1)
        harness.clock.advance(2)
        results = await harness.together(TWENTY, lambda _: harness.enqueue("a"))
        assert sorted(r.status for r in results) == ["duplicate"] * (TWENTY - 1) + ["queued"]
        assert len(await harness.claim()) == 1

    @case
    async def test_enqueueing_an_id_while_it_is_completed_is_either_or(self, harness: Harness) -> None:
        for round_ in range(10):
            job_id = f"a{round_}"
            await harness.enqueue(job_id)
            job = await harness.claim_one()
            results = await harness.together(TWENTY, lambda n, job=job: self._complete_or_enqueue(harness, job, n))
            assert results.pop(0) == "completed"
            assert set(results) <= {"duplicate", "completed"}
            assert await harness.claim() == []

    async def _complete_or_enqueue(self, harness: Harness, job: Any, n: int) -> str | None:
        if n == 0:
            return await harness.settle(job, Completed(b"1"))
        return (await harness.enqueue(job.lease.id)).status

    @case
    async def test_overlapping_batches_in_different_orders_do_not_deadlock(self, harness: Harness) -> None:
        ids = [str(n) for n in range(40)]

        async def batch(n: int) -> list[str]:
            return [r.status for r in await harness.enqueue_all(*(ids if n % 2 else reversed(ids)))]

        results = await harness.together(8, batch)
        assert sum(status == "queued" for statuses in results for status in statuses) == len(ids)
