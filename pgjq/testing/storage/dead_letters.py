"""Storage contract, dead letters: copies of failed jobs in another queue, and back."""

from __future__ import annotations

from pgjq.job import JobSource
from pgjq.outcome import Failed, Failing
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import case
from pgjq.testing.storage.definition_cases import DefinitionCases
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness
from pgjq.testing.storage.policy_cases import definitions


@requires("definitions")
class DeadLetters(DefinitionCases):
    """Jobs that failed for good, in the queue that `dead_letter` names."""

    @case
    async def test_a_job_that_has_failed_is_copied_to_its_dead_letter_queue(self, harness: Harness) -> None:
        await self.create(harness, "letters", expire_in_seconds=77)
        await self.create(
            harness,
            dead_letter="letters",
            retry_limit=1,
            retry_delay=3,
            retention_seconds=500,
            delete_after_seconds=9000,
        )
        await harness.enqueue("a", b"payload", priority=4, singleton_key="k")
        assert await harness.settle(await harness.claim_one(), Failing(BOOM)) == "failing"
        assert await self.dead_letters(harness) == []
        assert await harness.settle(await harness.claim_one(), Failed(BOOM)) == "failed"
        (letter,) = await self.dead_letters(harness)
        assert letter.source == JobSource(QUEUE, "a", 2, BOOM)
        assert (letter.state, letter.max_attempts, letter.priority) == ("queued", 2, 4)
        (job,) = await harness.claim(queue="letters")
        assert (job.payload, job.expire_seconds, job.options.retry_delay) == (b"payload", 77, 3)
        assert (job.options.retention_seconds, job.options.delete_after_seconds) == (500, 9000)
        assert (await harness.status("a")).source is None

    @case
    async def test_a_job_that_stalled_too_often_is_copied_too(self, harness: Harness) -> None:
        await self.create(harness, "letters")
        await harness.enqueue("a", dead_letter="letters", max_attempts=1)
        await harness.claim_one(lease=30)
        harness.clock.advance(30)
        assert [r.action for r in await harness.ops.reap()] == ["failed"]
        (letter,) = await self.dead_letters(harness)
        assert letter.source is not None
        assert letter.source.error is not None
        assert (letter.source.id, letter.source.error.type) == ("a", "Stalled")

    @case
    async def test_dead_letters_of_dead_letters_go_on(self, harness: Harness) -> None:
        await self.create(harness, "last")
        await self.create(harness, "letters", dead_letter="last")
        await harness.fail("a", dead_letter="letters")
        (job,) = await harness.claim(queue="letters")
        await harness.settle(job, Failed(BOOM))
        (letter,) = await self.dead_letters(harness, "last")
        assert letter.source == JobSource("letters", job.lease.id, 1, BOOM)
        (job,) = await harness.claim(queue="last")
        await harness.settle(job, Failed(BOOM))
        assert len(await self.dead_letters(harness, "last")) == 1

    @case
    async def test_a_dead_letter_queue_in_strict_order_gets_a_key(self, harness: Harness) -> None:
        await self.create(harness, "letters", policy="key_strict_fifo")
        await harness.fail("a", dead_letter="letters")
        (letter,) = await self.dead_letters(harness)
        assert letter.singleton_key == "a"

    @case
    async def test_dead_letters_are_sent_back_to_where_they_came_from(self, harness: Harness) -> None:
        await self.create(harness, "letters")
        await self.create(harness, dead_letter="letters")
        for job_id in ("a", "b", "c"):
            await harness.fail(job_id)
        await harness.ops.delete(QUEUE, ["b"])
        assert await definitions(harness).redrive("letters", limit=2) == 2
        assert len(await self.dead_letters(harness)) == 1
        assert sorted([job.lease.id for job in await harness.claim()]) == ["a", "b"]
        assert await definitions(harness).redrive("letters", limit=10, to="elsewhere") == 1
        (job,) = await harness.claim(queue="elsewhere")
        assert job.lease.id == "c"
        assert await definitions(harness).redrive("letters", limit=10) == 0

    @case
    async def test_a_letter_that_has_no_place_stays_and_is_in_nobodys_way(self, harness: Harness) -> None:
        await self.create(harness, "letters")
        await self.create(harness, policy="exclusive", dead_letter="letters")
        for job_id, key in (("a", "k"), ("c", "l")):
            await harness.fail(job_id, singleton_key=key)
        await harness.enqueue("b", singleton_key="k")
        assert await definitions(harness).redrive("letters", limit=1) == 1
        assert await definitions(harness).redrive("letters", limit=10) == 0
        (letter,) = await self.dead_letters(harness)
        assert (letter.source or JobSource("", "", 0, None)).id == "a"
        await self.create(harness, "strict", policy="key_strict_fifo")
        await harness.enqueue("keyless", queue="other", dead_letter="letters")
        (keyless,) = await harness.claim(queue="other")
        await harness.settle(keyless, Failed(BOOM))
        assert await definitions(harness).redrive("letters", limit=10, to="strict") == 1
