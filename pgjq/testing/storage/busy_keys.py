"""Storage contract, policies that run one job of a key at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pgjq.outcome import Completed, Failed, Failing, Released
from pgjq.policy import POLICIES, Policy, PolicyName
from pgjq.storage.base import Settlement
from pgjq.testing.case_selection import requires
from pgjq.testing.storage.cases import case
from pgjq.testing.storage.harness import BOOM, QUEUE, Harness
from pgjq.testing.storage.policy_cases import PolicyCases

if TYPE_CHECKING:
    from pgjq.storage.base import Claimed

SERIAL = [policy for policy in POLICIES if Policy(policy).is_serial]
CLAIMERS = 8


@requires("definitions")
class BusyKeys(PolicyCases):
    """However a run ends, the next job of its key runs, and other keys do not wait for it."""

    @case
    @pytest.mark.parametrize("policy", SERIAL)
    @pytest.mark.parametrize("end", ["complete", "fail", "cancel", "reap"])
    async def test_when_a_job_has_gone_the_next_of_its_key_runs(
        self,
        harness: Harness,
        partition: bool,
        policy: PolicyName,
        end: str,
    ) -> None:
        await self.define(harness, policy, partition)
        await harness.enqueue("1", singleton_key="k", max_attempts=1)
        first = await harness.claim_one()
        await harness.enqueue("2", singleton_key="k")
        assert await self.ids(harness) == []
        match end:
            case "complete":
                await harness.settle(first, Completed(b"1"))
            case "fail":
                await harness.settle(first, Failed(BOOM))
            case "cancel":
                await harness.ops.cancel(QUEUE, "1", active=True)
                await harness.settle(first, Released())
            case _:
                harness.clock.advance(30)
                assert [r.action for r in await harness.ops.reap()] == ["failed"]
        blocked = policy == "key_strict_fifo" and end in ("fail", "reap")
        assert await self.ids(harness) == ([] if blocked else ["2"])

    @case
    @pytest.mark.parametrize("policy", ["singleton", "key_strict_fifo"])
    @pytest.mark.parametrize("end", ["cancel", "delete", "prune"])
    async def test_when_a_waiting_job_is_taken_out_those_behind_it_run(
        self,
        harness: Harness,
        partition: bool,
        policy: PolicyName,
        end: str,
    ) -> None:
        await self.define(harness, policy, partition)
        await self.fill(harness, ("1", "k"))
        first = await harness.claim_one(lease=None, heartbeat=None, expire=None)
        await harness.enqueue("2", singleton_key="k", retention_seconds=10)
        await harness.enqueue("3", singleton_key="k")
        assert await self.ids(harness) == []
        match end:
            case "cancel":
                await harness.ops.cancel(QUEUE, "2")
            case "delete":
                await harness.ops.delete(QUEUE, ["2"])
            case _:
                harness.clock.advance(10)
                assert await harness.ops.prune() == 1
        await harness.settle(first, Completed(b"1"))
        assert await self.ids(harness) == ["3"]

    @case
    @pytest.mark.parametrize("policy", ["singleton", "key_strict_fifo"])
    async def test_a_thousand_jobs_of_a_busy_key_hide_nobody(
        self,
        harness: Harness,
        partition: bool,
        policy: PolicyName,
    ) -> None:
        await self.define(harness, policy, partition)
        await self.fill(harness, *((f"a{n}", "a") for n in range(1000)), ("b", "b"))
        assert await self.ids(harness, 2) == ["a0", "b"]

    @case
    async def test_somebody_who_sleeps_is_woken_when_a_key_is_free(self, harness: Harness, partition: bool) -> None:
        await self.define(harness, "singleton", partition)
        await self.fill(harness, ("1", "k"), ("2", "k"))
        first = await harness.claim_one()
        assert not await harness.ops.wait_for_work([QUEUE], 0.05)

        async def sleep_or_settle(n: int) -> bool:
            if n == 0:
                return await harness.ops.wait_for_work([QUEUE], 30)
            await harness.settle(first, Completed(b"1"))
            return True

        assert await harness.together(2, sleep_or_settle) == [True, True]
        assert await self.ids(harness) == ["2"]

    @case
    @pytest.mark.parametrize("policy", POLICIES)
    async def test_eight_claimers_never_run_more_of_a_key_than_they_may_and_lose_none(
        self,
        harness: Harness,
        partition: bool,
        policy: PolicyName,
    ) -> None:
        """Each checks that it alone has its keys, and releases or completes, in strict order."""
        await self.define(harness, policy, partition)
        keys = [f"k{n}" for n in range(5)]
        each = 1 if Policy(policy).limits_queued else 8
        await self.fill(harness, *((f"{key}-{n}", key) for n in range(each) for key in keys))
        race = Race(harness, len(keys) * each, alone=Policy(policy).slot("processing") is not None)
        await harness.together(CLAIMERS, race.work)
        assert sorted(race.done) == sorted(f"{key}-{n}" for key in keys for n in range(each))
        if policy == "key_strict_fifo":
            for key in keys:
                assert [i for i in race.done if i.startswith(f"{key}-")] == [f"{key}-{n}" for n in range(each)]


@dataclass
class Race:
    """Claimers at work: which keys run now, and which jobs have ended, in this order."""

    harness: Harness
    total: int
    alone: bool
    running: Counter[str] = field(default_factory=Counter[str])
    done: list[str] = field(default_factory=list[str])

    async def work(self, worker: int) -> None:
        """Claim and settle until all jobs have ended, or until there was nothing to claim for long."""
        idle = 0
        while len(self.done) < self.total and idle < 500:
            jobs = await self.harness.claim(3, worker=f"w{worker}")
            idle = 0 if jobs else idle + 1
            self.running.update(key_of(job) for job in jobs)
            assert not self.alone or all(self.running[key_of(job)] == 1 for job in jobs)
            for turn, job in enumerate(jobs):
                await self.settle(job, again=job.attempts == 1 and turn == 0)

    async def settle(self, job: Claimed, *, again: bool) -> None:
        """Complete a job, or let its first attempt fail."""
        self.running[key_of(job)] -= 1
        if not again:
            self.done.append(job.lease.id)
        outcome = Failing(BOOM) if again else Completed()
        (answer,) = await self.harness.ops.settle([Settlement(job.lease, outcome)])
        assert answer.state == ("failing" if again else "completed")


def key_of(job: Claimed) -> str:
    """Return the key, which is the first part of the ids here."""
    return job.lease.id.partition("-")[0]
