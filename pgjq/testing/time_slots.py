"""Storage contract, throttling: one job of a key in each slot of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgjq.outcome import Completed
from pgjq.testing.applicable import requires
from pgjq.testing.bench import QUEUE, Bench
from pgjq.testing.cases import case
from pgjq.testing.definition_cases import DefinitionCases


@requires("definitions")
class TimeSlots(DefinitionCases):
    """`singleton_seconds` and `debounce`."""

    @case
    async def test_a_slot_of_time_has_one_job_of_a_key(self, bench: Bench) -> None:
        assert (await bench.enqueue("a", singleton_seconds=60)).status == "queued"
        refused = await bench.enqueue("b", singleton_seconds=60)
        assert (refused.status, refused.existing_state) == ("duplicate", "queued")
        assert (await bench.enqueue("c", singleton_seconds=60, singleton_key="k")).status == "queued"
        await bench.settle((await bench.claim())[0], Completed(b"1"))
        bench.clock.advance(59)
        assert (await bench.enqueue("d", singleton_seconds=60)).existing_state == "completed"
        bench.clock.advance(1)
        assert (await bench.enqueue("e", singleton_seconds=60)).status == "queued"
        assert (await bench.enqueue("free")).status == "queued"

    @case
    async def test_a_job_that_is_too_many_may_have_the_next_slot(self, bench: Bench) -> None:
        await bench.enqueue("a", debounce=60)
        bench.clock.advance(20)
        assert (await bench.enqueue("b", debounce=60)).status == "queued"
        assert (await bench.enqueue("c", singleton_seconds=60, singleton_next_slot=True)).status == "duplicate"
        assert [job.lease.id for job in await bench.claim()] == ["a"]
        bench.clock.advance(39)
        assert await bench.claim() == []
        bench.clock.advance(1)
        assert [job.lease.id for job in await bench.claim()] == ["b"]
        assert (await bench.enqueue("d", singleton_seconds=60)).existing_state == "processing"

    @case
    @pytest.mark.parametrize("hours", [-1, 1])
    async def test_a_slot_of_time_leaves_a_jobs_own_time_as_it_is(self, bench: Bench, hours: int) -> None:
        await bench.enqueue("probe")
        run_at = (await bench.status("probe")).created_at + timedelta(hours=hours, seconds=0.5)
        assert (await bench.enqueue("a", singleton_seconds=60, run_at=run_at)).status == "queued"
        assert (await bench.status("a")).run_at == run_at
        assert (await bench.enqueue("b", singleton_seconds=60)).status == "duplicate"
        assert [job.lease.id for job in await bench.claim()] == ["probe", "a"][: 1 if hours > 0 else 2]

    @case
    async def test_the_next_slot_runs_no_job_before_its_own_time(self, bench: Bench) -> None:
        for key in ("past", "future", "delay", "soon"):
            await bench.enqueue(key, singleton_key=key, debounce=60)
        now = (await bench.status("past")).created_at
        own: dict[str, dict[str, Any]] = {
            "past": {"run_at": now - timedelta(hours=1)},
            "future": {"run_at": now + timedelta(hours=1)},
            "delay": {"delay": 3600},
            "soon": {"delay": 1},
        }
        for key, options in own.items():
            await bench.enqueue(f"next {key}", singleton_key=key, debounce=60, **options)
        waits = {key: (await bench.status(f"next {key}")).run_at for key in own}
        slot, hour = now + timedelta(seconds=60), now + timedelta(hours=1)
        assert waits == {"past": slot, "future": hour, "delay": hour, "soon": slot}

    @case
    @pytest.mark.parametrize("end", ["cancel", "delete"])
    async def test_a_job_that_is_withdrawn_gives_its_slot_back(self, bench: Bench, end: str) -> None:
        await bench.enqueue("a", singleton_seconds=60)
        if end == "cancel":
            await bench.ops.cancel(QUEUE, "a")
        else:
            await bench.ops.delete(QUEUE, ["a"])
        assert (await bench.enqueue("b", singleton_seconds=60)).status == "queued"
        assert (await bench.enqueue("c", singleton_seconds=60)).status == "duplicate"

    @case
    async def test_of_eight_that_want_one_slot_one_gets_it(self, bench: Bench) -> None:
        async def enqueue(n: int) -> str:
            return (await bench.enqueue(f"{n}", singleton_seconds=60)).status

        assert sorted(await bench.together(8, enqueue)) == ["duplicate"] * 7 + ["queued"]
