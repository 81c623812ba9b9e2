"""Storage contract, dead letters: copies of failed jobs in another queue, and their way back."""

from __future__ import annotations

from pgjq.job import JobSource
from pgjq.outcome import Failed, Failing
from pgjq.testing.applicable import requires
from pgjq.testing.bench import BOOM, QUEUE, Bench
from pgjq.testing.cases import case
from pgjq.testing.definition_cases import DefinitionCases
from pgjq.testing.policy_cases import definitions


@requires("definitions")
class DeadLetters(DefinitionCases):
    """Jobs that failed for good, in the queue that `dead_letter` names."""

    @case
    async def test_a_job_that_has_failed_is_copied_to_its_dead_letter_queue(self, bench: Bench) -> None:
        await self.create(bench, "letters", expire_in_seconds=77)
        await self.create(
            bench, dead_letter="letters", retry_limit=1, retry_delay=3, retention_seconds=500, delete_after_seconds=9000
        )
        await bench.enqueue("a", b"payload", priority=4, singleton_key="k")
        assert await bench.settle(await bench.claim_one(), Failing(BOOM)) == "failing"
        assert await self.letters(bench) == []
        assert await bench.settle(await bench.claim_one(), Failed(BOOM)) == "failed"
        (letter,) = await self.letters(bench)
        assert letter.source == JobSource(QUEUE, "a", 2, BOOM)
        assert (letter.state, letter.max_attempts, letter.priority) == ("queued", 2, 4)
        (job,) = await bench.claim(queue="letters")
        assert (job.payload, job.expire_seconds, job.options.retry_delay) == (b"payload", 77, 3)
        assert (job.options.retention_seconds, job.options.delete_after_seconds) == (500, 9000)
        assert (await bench.status("a")).source is None

    @case
    async def test_a_job_that_stalled_too_often_is_copied_too(self, bench: Bench) -> None:
        await self.create(bench, "letters")
        await bench.enqueue("a", dead_letter="letters", max_attempts=1)
        await bench.claim_one(lease=30)
        bench.clock.advance(30)
        assert [r.action for r in await bench.ops.reap()] == ["failed"]
        (letter,) = await self.letters(bench)
        assert letter.source is not None
        assert letter.source.error is not None
        assert (letter.source.id, letter.source.error.type) == ("a", "Stalled")

    @case
    async def test_dead_letters_of_dead_letters_go_on(self, bench: Bench) -> None:
        await self.create(bench, "last")
        await self.create(bench, "letters", dead_letter="last")
        await bench.fail("a", dead_letter="letters")
        (job,) = await bench.claim(queue="letters")
        await bench.settle(job, Failed(BOOM))
        (letter,) = await self.letters(bench, "last")
        assert letter.source == JobSource("letters", job.lease.id, 1, BOOM)
        (job,) = await bench.claim(queue="last")
        await bench.settle(job, Failed(BOOM))
        assert len(await self.letters(bench, "last")) == 1

    @case
    async def test_a_dead_letter_queue_in_strict_order_gets_a_key(self, bench: Bench) -> None:
        await self.create(bench, "letters", policy="key_strict_fifo")
        await bench.fail("a", dead_letter="letters")
        (letter,) = await self.letters(bench)
        assert letter.singleton_key == "a"

    @case
    async def test_dead_letters_are_sent_back_to_where_they_came_from(self, bench: Bench) -> None:
        await self.create(bench, "letters")
        await self.create(bench, dead_letter="letters")
        for job_id in ("a", "b", "c"):
            await bench.fail(job_id)
        await bench.ops.delete(QUEUE, ["b"])
        assert await definitions(bench).redrive("letters", limit=2) == 2
        assert len(await self.letters(bench)) == 1
        assert sorted([job.lease.id for job in await bench.claim()]) == ["a", "b"]
        assert await definitions(bench).redrive("letters", limit=10, to="elsewhere") == 1
        (job,) = await bench.claim(queue="elsewhere")
        assert job.lease.id == "c"
        assert await definitions(bench).redrive("letters", limit=10) == 0

    @case
    async def test_a_letter_that_has_no_place_stays_and_is_in_nobodys_way(self, bench: Bench) -> None:
        await self.create(bench, "letters")
        await self.create(bench, policy="exclusive", dead_letter="letters")
        for job_id, key in (("a", "k"), ("c", "l")):
            await bench.fail(job_id, singleton_key=key)
        await bench.enqueue("b", singleton_key="k")
        assert await definitions(bench).redrive("letters", limit=1) == 1
        assert await definitions(bench).redrive("letters", limit=10) == 0
        (letter,) = await self.letters(bench)
        assert (letter.source or JobSource("", "", 0, None)).id == "a"
        await self.create(bench, "strict", policy="key_strict_fifo")
        await bench.enqueue("keyless", queue="other", dead_letter="letters")
        (keyless,) = await bench.claim(queue="other")
        await bench.settle(keyless, Failed(BOOM))
        assert await definitions(bench).redrive("letters", limit=10, to="strict") == 1
