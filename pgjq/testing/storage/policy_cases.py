"""Shared by the cases of policies: queues with and without own tables, keys, claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import pytest

from pgjq.definition import define
from pgjq.job import NewJob
from pgjq.job_settings import settings
from pgjq.options import Submission
from pgjq.testing.storage.cases import Cases
from pgjq.testing.storage.harness import QUEUE, Harness

if TYPE_CHECKING:
    from pgjq.declared_options import QueueChanges, QueueOptions
    from pgjq.policy import PolicyName
    from pgjq.storage.base import Definitions


class PolicyCases(Cases):
    """Cases that run on a queue in shared tables and on one with tables of its own."""

    @pytest.fixture(params=[False, True], ids=["together", "partition"])
    def partition(self, request: pytest.FixtureRequest) -> bool:
        return request.param

    async def define(
        self, harness: Harness, policy: PolicyName, partition: bool, name: str = QUEUE, **changes: Unpack[QueueChanges]
    ) -> None:
        options: QueueOptions = {"policy": policy, "partition": partition, **changes}
        await definitions(harness).create_queue(name, define(name, options))

    async def ids(self, harness: Harness, limit: int = 10) -> list[str]:
        return [job.lease.id for job in await harness.claim(limit)]

    async def fill(self, harness: Harness, *jobs: tuple[str, str]) -> None:
        """Enqueue jobs with keys in one call."""
        batch = [Submission(i, b"1", settings(NewJob(i, None, singleton_key=key))) for i, key in jobs]
        await harness.ops.enqueue(QUEUE, batch)


def definitions(harness: Harness) -> Definitions:
    """Return the operations of a storage with definitions."""
    return harness.ops  # pyright: ignore[reportReturnType]
