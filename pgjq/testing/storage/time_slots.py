"""Storage contract, throttling: one job of a key in each slot of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgjq.outcome import Completed
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import case
from pgjq.testing.storage.definition_cases import DefinitionCases
from pgjq.testing.storage.harness import QUEUE, Harness


@requires("definitions")
class TimeSlots(DefinitionCases):
    """`singleton_seconds` and `debounce`."""

    @case
    async def test_a_slot_of_time_has_one_job_of_a_key(self, harness: Harness) -> None:
        assert (await harness.enqueue("a", singleton_seconds=60)).status == "queued"
        refused = await harness.enqueue("b", singleton_seconds=60)
        assert (refused.status, refused.existing_state) == ("duplicate", "queued")
        assert (await harness.enqueue("c", singleton_seconds=60, singleton_key="k")).status == "queued"
        await harness.settle((await harness.claim())[0], Completed(b"1"))
        harness.clock.advance(59)
        assert (await harness.enqueue("d", singleton_seconds=60)).existing_state == "completed"
        harness.clock.advance(1)
        assert (await harness.enqueue("e", singleton_seconds=60)).status == "queued"
        assert (await harness.enqueue("free")).status == "queued"

    @case
    async def test_a_job_that_is_too_many_may_have_the_next_slot(self, harness: Harness) -> None:
        await harness.enqueue("a", debounce=60)
        harness.clock.advance(20)
        assert (await harness.enqueue("b", debounce=60)).status == "queued"
        assert (await harness.enqueue("c", singleton_seconds=60, singleton_next_slot=True)).status == "duplicate"
        assert [job.lease.id for job in await harness.claim()] == ["a"]
        harness.clock.advance(39)
        assert await harness.claim() == []
        harness.clock.advance(1)
        assert [job.lease.id for job in await harness.claim()] == ["b"]
        assert (await harness.enqueue("d", singleton_seconds=60)).existing_state == "processing"

    @case
    @pytest.mark.parametrize("hours", [-1, 1])
    async def test_a_slot_of_time_leaves_a_jobs_own_time_as_it_is(self, harness: Harness, hours: int) -> None:
        await harness.enqueue("probe")
        run_at = (await harness.status("probe")).created_at + timedelta(hours=hours, seconds=0.5)
        assert (await harness.enqueue("a", singleton_seconds=60, run_at=run_at)).status == "queued"
        assert (await harness.status("a")).run_at == run_at
        assert (await harness.enqueue("b", singleton_seconds=60)).status == "duplicate"
        assert [job.lease.id for job in await harness.claim()] == ["probe", "a"][: 1 if hours > 0 else 2]

    @case
    async def test_the_next_slot_runs_no_job_before_its_own_time(self, harness: Harness) -> None:
        for key in ("past", "future", "delay", "soon"):
            await harness.enqueue(key, singleton_key=key, debounce=60)
        now = (await harness.status("past")).created_at
        own: dict[str, dict[str, Any]] = {
            "past": {"run_at": now - timedelta(hours=1)},
            "future": {"run_at": now + timedelta(hours=1)},
            "delay": {"delay": 3600},
            "soon": {"delay": 1},
        }
        for key, options in own.items():
            await harness.enqueue(f"next {key}", singleton_key=key, debounce=60, **options)
        waits = {key: (await harness.status(f"next {key}")).run_at for key in own}
        slot, hour = now + timedelta(seconds=60), now + timedelta(hours=1)
        assert waits == {"past": slot, "future": hour, "delay": hour, "soon": slot}

    @case
    @pytest.mark.parametrize("end", ["cancel", "delete"])
    async def test_a_job_that_is_withdrawn_gives_its_slot_back(self, harness: Harness, end: str) -> None:
        await harness.enqueue("a", singleton_seconds=60)
        if end == "cancel":
            await harness.ops.cancel(QUEUE, "a")
        else:
            await harness.ops.delete(QUEUE, ["a"])
        assert (await harness.enqueue("b", singleton_seconds=60)).status == "queued"
        assert (await harness.enqueue("c", singleton_seconds=60)).status == "duplicate"

    @case
    async def test_of_eight_that_want_one_slot_one_gets_it(self, harness: Harness) -> None:
        async def enqueue(n: int) -> str:
            return (await harness.enqueue(f"{n}", singleton_seconds=60)).status

        assert sorted(await harness.together(8, enqueue)) == ["duplicate"] * 7 + ["queued"]
