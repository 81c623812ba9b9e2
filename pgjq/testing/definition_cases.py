"""What the cases of queue definitions share: create a queue, read it, list its dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from pgjq.definition import define
from pgjq.options import JobFilter
from pgjq.testing.bench import QUEUE, Bench
from pgjq.testing.cases import Cases
from pgjq.testing.policy_cases import definitions

if TYPE_CHECKING:
    from pgjq.declared_options import QueueOptions
    from pgjq.job import JobStatus, QueueInfo

DAY = 86400


class DefinitionCases(Cases):
    """Cases that create queues with settings."""

    async def create(self, bench: Bench, name: str = QUEUE, **given: Unpack[QueueOptions]) -> None:
        await definitions(bench).create_queue(name, define(name, given))

    async def info(self, bench: Bench, name: str = QUEUE) -> QueueInfo:
        (info,) = await definitions(bench).queues(name)
        return info

    async def letters(self, bench: Bench, queue: str = "letters") -> list[JobStatus]:
        return (await bench.ops.find(JobFilter(queue=queue)))[0]
