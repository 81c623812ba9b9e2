"""Play a scenario on several storages at once, and compare what they answer after each step.

The answer to a step is what the call returned or raised; after every fourth step it is also all jobs, after the last
one everything that can be seen. `plain` and `_free` leave out what storages are free to decide; nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgjq.errors import PgjqError, StorageError
from pgjq.job import LIVE
from pgjq.options import JobFilter
from tests.storage_comparison.normalize import plain
from tests.storage_comparison.steps import QUEUES, Events, Find, Prune, ReadResults, Step
from tests.storage_comparison.subject import FENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.storage_comparison.steps import Scenario
    from tests.storage_comparison.subject import Subject

    Look = Callable[[Subject], Iterator[tuple[str, Any]]]

OFTEN = 4


@dataclass(frozen=True)
class Difference:
    """The first step whose answers are not the same, or are an error that no scenario asks for."""

    number: int
    step: Step
    answers: dict[str, Any]


def play(scenario: Scenario, subjects: Sequence[Subject]) -> Difference | None:
    """Play a scenario on all subjects that can, up to the first difference."""
    able = [subject for subject in subjects if subject.storage.capabilities.definitions or not scenario.definitions]
    for subject in able:
        subject.start(scenario.mode)
    try:
        for number, step in enumerate(scenario.steps):
            looks = _looks(scenario, number)
            answers = {subject.name: _answer(subject, scenario, step, looks) for subject in able}
            first = answers[able[0].name]
            if any(answer != first for answer in answers.values()) or _is_broken(first):
                return Difference(number, step, answers)
    finally:
        for subject in able:
            subject.end()
    return None


def _is_broken(answer: Any) -> bool:
    return isinstance(answer[0], Exception)


def _looks(scenario: Scenario, number: int) -> list[Look]:
    """Say what to look at after a step; in a scenario that was shrunk, the last step shows what differs."""
    if number == len(scenario.steps) - 1:
        return [_jobs, _deadline, _stats, *([_queues] if scenario.definitions else [])]
    return [_jobs] if number % OFTEN == OFTEN - 1 else []


def _answer(subject: Subject, scenario: Scenario, step: Step, looks: Sequence[Look]) -> tuple[Any, Any]:
    answer = subject.play(step)
    seen = {name: plain(value, subject) for look in looks for name, value in look(subject)}
    if isinstance(answer, Exception) and (isinstance(answer, StorageError) or not isinstance(answer, PgjqError)):
        return answer, seen
    return _free(scenario, step, plain(answer, subject)), seen


def _jobs(subject: Subject) -> Iterator[tuple[str, Any]]:
    found, _ = subject.operate("find", JobFilter(limit=1000))
    for queue in QUEUES:
        for number, job in enumerate(job for job in found if job.queue == queue):
            yield f"job {number} in {queue}", job


def _deadline(subject: Subject) -> Iterator[tuple[str, Any]]:
    yield "next deadline", subject.operate("next_deadline")


def _stats(subject: Subject) -> Iterator[tuple[str, Any]]:
    for queue in QUEUES:
        yield f"statistics of {queue}", subject.operate("stats", queue)


def _queues(subject: Subject) -> Iterator[tuple[str, Any]]:
    for info in subject.operate("queues"):
        if info.name != FENCE:
            yield f"queue {info.name}", info


def _free(scenario: Scenario, step: Step, answer: Any) -> Any:
    """Leave out what storages are free to decide about the answer to one kind of step.

    * Events of one job come in their order; events of different jobs in any.
    * A waiter learns why a job failed when it has failed for good; before that, a storage may say so or not.
    * A job whose id is used again is forgotten by Redis at once, by the others when it is pruned, and counted.
    * Jobs of one queue are found in their order; where a page ends is the storage's own, and so is the order of jobs
      of different queues.
    """
    match step:
        case Events():
            return [sorted(events, key=_job_of) for events in answer]
        case ReadResults() if isinstance(answer, list):
            return [a and (a[0], a[1] | ({"error": None} if a[1]["state"] in LIVE else {})) for a in answer]
        case Prune() if not scenario.definitions:
            return None
        case Find(queue=None) if isinstance(answer, list):
            return sorted((job for page in answer for job in page), key=lambda job: job[1]["queue"])
        case _:
            return answer


def _job_of(event: Any) -> tuple[str, str]:
    return event[1]["queue"], event[1]["id"]
