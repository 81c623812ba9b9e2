"""What the cases of queue definitions share: create a queue, read it, list its dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from pgjq.definition import define
from pgjq.options import JobFilter
from pgjq.testing.storage.cases import Cases
from pgjq.testing.storage.harness import QUEUE, Harness
from pgjq.testing.storage.policy_cases import definitions

if TYPE_CHECKING:
    from pgjq.declared_options import QueueOptions
    from pgjq.job import JobStatus, QueueInfo

DAY = 86400


class DefinitionCases(Cases):
    """Cases that create queues with settings."""

    async def create(self, harness: Harness, name: str = QUEUE, **given: Unpack[QueueOptions]) -> None:
        await definitions(harness).create_queue(name, define(name, given))

    async def info(self, harness: Harness, name: str = QUEUE) -> QueueInfo:
        (info,) = await definitions(harness).queues(name)
        return info

    async def dead_letters(self, harness: Harness, queue: str = "letters") -> list[JobStatus]:
        return (await harness.ops.find(JobFilter(queue=queue)))[0]
