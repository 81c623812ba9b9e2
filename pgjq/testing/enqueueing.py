"""Storage contract: ids, deduplication and order."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq.errors import UnsupportedError
from pgjq.options import Settings, Submission
from pgjq.outcome import Completed, Failing
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import Cases, case

TWENTY = 20


class Enqueueing(Cases):
    """Ids, deduplication and order."""

    @case
    async def test_a_free_id_is_queued(self, bench: Bench) -> None:
        result = await bench.enqueue("a")
        assert (result.status, result.id, result.existing_state) == ("queued", "a", None)
        assert await bench.state("a") == "queued"

    @case
    async def test_an_id_is_taken_while_its_job_lives(self, bench: Bench) -> None:
        await bench.enqueue("a")
        assert (await bench.enqueue("a")).existing_state == "queued"
        job = await bench.claim_one()
        assert (await bench.enqueue("a")).existing_state == "processing"
        await bench.settle(job, Failing(BOOM, delay=60))
        again = await bench.enqueue("a")
        assert (again.status, again.existing_state) == ("duplicate", "failing")

    @case
    async def test_a_completed_id_answers_with_its_result_until_that_expires(self, bench: Bench) -> None:
        await bench.complete("a", b'"first"', result_ttl=60)
        bench.clock.advance(59)
        again = await bench.enqueue("a")
        assert (again.status, again.existing_state, again.result) == ("completed", "completed", b'"first"')
        bench.clock.advance(1)
        assert (await bench.enqueue("a", b"2")).status == "queued"
        assert (await bench.claim_one()).payload == b"2"

    @case
    async def test_a_failed_id_is_enqueued_as_a_new_run(self, bench: Bench) -> None:
        await bench.fail("a")
        assert (await bench.enqueue("a", b"2")).status == "queued"
        job = await bench.claim_one()
        assert (job.payload, job.attempts) == (b"2", 1)

    @case
    async def test_a_failed_id_can_be_asked_to_count_as_taken(self, bench: Bench) -> None:
        await bench.fail("a", result_ttl=60)
        again = await bench.enqueue("a", on_failed="duplicate")
        assert (again.status, again.existing_state) == ("duplicate", "failed")
        bench.clock.advance(60)
        assert (await bench.enqueue("a", on_failed="duplicate")).status == "queued"

    @case
    async def test_a_cancelled_id_is_free_at_once_and_only_the_newer_payload_runs(self, bench: Bench) -> None:
        await bench.enqueue("a", b"old")
        await bench.ops.cancel(QUEUE, "a")
        assert (await bench.enqueue("a", b"new")).status == "queued"
        assert [job.payload for job in await bench.claim()] == [b"new"]

    @case
    async def test_the_first_accepted_enqueue_settles_the_ttl(self, bench: Bench) -> None:
        await bench.enqueue("a", result_ttl=10)
        await bench.enqueue("a", result_ttl=1000)
        await bench.settle(await bench.claim_one(), Completed(b"1"))
        bench.clock.advance(10)
        assert (await bench.status("a")).result is None

    @case
    async def test_an_id_twice_in_one_batch_is_queued_once(self, bench: Bench) -> None:
        results = await bench.enqueue_all("b", "a", "b", "c", "a")
        assert [r.status for r in results] == ["queued", "queued", "duplicate", "queued", "duplicate"]
        assert [r.id for r in results] == ["b", "a", "b", "c", "a"]
        assert [job.lease.id for job in await bench.claim()] == ["b", "a", "c"]

    @case
    async def test_a_batch_mixes_free_and_taken_ids(self, bench: Bench) -> None:
        await bench.complete("done", b"7")
        await bench.enqueue("queued")
        results = await bench.enqueue_all("new", "done", "queued", "newer")
        assert [r.status for r in results] == ["queued", "completed", "duplicate", "queued"]
        assert results[1].result == b"7"

    @case
    async def test_queues_do_not_share_ids(self, bench: Bench) -> None:
        await bench.enqueue("a", queue="one")
        assert (await bench.enqueue("a", queue="two")).status == "queued"
        assert [job.lease.queue for job in await bench.claim(queue="two")] == ["two"]

    @case
    async def test_any_text_can_be_an_id(self, bench: Bench) -> None:
        ids = ["a:b", "../../etc", "a b", "ü€😀", '"{}\\,', "NULL", "%s", "'; drop table job; --", "x" * 512, "\t\n"]
        assert all(r.status == "queued" for r in await bench.enqueue_all(*ids))
        assert [job.lease.id for job in await bench.claim(limit=20)] == ids
        assert set(await bench.ops.get(QUEUE, ids)) == set(ids)

    @case
    async def test_any_bytes_can_be_a_payload(self, bench: Bench) -> None:
        payloads = [b"", b"\0\xff\\\"'", bytes(range(256)), b"x" * 1_000_000]
        for n, payload in enumerate(payloads):
            await bench.enqueue(str(n), payload)
        assert [job.payload for job in await bench.claim()] == payloads

    @case
    async def test_made_ids_are_queued_in_order(self, bench: Bench) -> None:
        usual = Settings()
        jobs = [Submission(str(n), b'{"n": "\\t"}', usual) for n in range(300)]
        results = await bench.ops.enqueue(QUEUE, jobs, generated_ids=True)
        assert {r.status for r in results} == {"queued"}
        assert [job.lease.id for job in await bench.claim(limit=300)] == [str(n) for n in range(300)]

    @case
    async def test_no_jobs_are_no_trouble(self, bench: Bench) -> None:
        assert await bench.ops.enqueue(QUEUE, []) == []

    @case
    async def test_a_connection_is_refused_by_a_storage_without_transactions(self, bench: Bench) -> None:
        if not bench.storage.capabilities.transactions:
            with pytest.raises(UnsupportedError):
                await bench.ops.enqueue(QUEUE, [], connection=object())

    @case
    async def test_twenty_callers_with_one_id_queue_it_once(self, bench: Bench) -> None:
        results = await bench.together(TWENTY, lambda _: bench.enqueue("a"))
        assert sorted(r.status for r in results) == ["duplicate"] * (TWENTY - 1) + ["queued"]

    @case
    async def test_twenty_callers_with_an_expired_id_queue_it_once(self, bench: Bench) -> None:
        await bench.complete("a", result_ttl=1)
        bench.clock.advance(2)
        results = await bench.together(TWENTY, lambda _: bench.enqueue("a"))
        assert sorted(r.status for r in results) == ["duplicate"] * (TWENTY - 1) + ["queued"]
        assert len(await bench.claim()) == 1

    @case
    async def test_enqueueing_an_id_while_it_is_completed_is_either_or(self, bench: Bench) -> None:
        for round_ in range(10):
            job_id = f"a{round_}"
            await bench.enqueue(job_id)
            job = await bench.claim_one()
            results = await bench.together(TWENTY, lambda n, job=job: self._complete_or_enqueue(bench, job, n))
            assert results.pop(0) == "completed"
            assert set(results) <= {"duplicate", "completed"}
            assert await bench.claim() == []

    async def _complete_or_enqueue(self, bench: Bench, job: Any, n: int) -> str | None:
        if n == 0:
            return await bench.settle(job, Completed(b"1"))
        return (await bench.enqueue(job.lease.id)).status

    @case
    async def test_overlapping_batches_in_different_orders_do_not_deadlock(self, bench: Bench) -> None:
        ids = [str(n) for n in range(40)]

        async def batch(n: int) -> list[str]:
            return [r.status for r in await bench.enqueue_all(*(ids if n % 2 else reversed(ids)))]

        results = await bench.together(8, batch)
        assert sum(status == "queued" for statuses in results for status in statuses) == len(ids)
