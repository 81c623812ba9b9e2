"""Play a story on several storages at once, and compare what they answer after each step.

The answer to a step is what the call returned or raised; after every fourth step it is also all jobs, after the last
one everything that can be seen. `plain` and `_free` leave out what storages are free to decide; nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgjq.errors import PgjqError, StorageError
from pgjq.job import LIVE
from pgjq.options import JobFilter
from tests.stories.plain import plain
from tests.stories.player import FENCE
from tests.stories.steps import QUEUES, Answers, Events, Find, Prune, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.stories.player import Player
    from tests.stories.steps import Story

    Look = Callable[[Player], Iterator[tuple[str, Any]]]

OFTEN = 4


@dataclass(frozen=True)
class Difference:
    """The first step whose answers are not the same, or are an error that no story asks for."""

    number: int
    step: Step
    answers: dict[str, Any]


def play(story: Story, players: Sequence[Player]) -> Difference | None:
    """Play a story on all players that can, up to the first difference."""
    able = [player for player in players if player.storage.capabilities.definitions or not story.definitions]
    for player in able:
        player.start(story.mode)
    try:
        for number, step in enumerate(story.steps):
            looks = _looks(story, number)
            answers = {player.name: _answer(player, story, step, looks) for player in able}
            first = answers[able[0].name]
            if any(answer != first for answer in answers.values()) or _is_broken(first):
                return Difference(number, step, answers)
    finally:
        for player in able:
            player.end()
    return None


def _is_broken(answer: Any) -> bool:
    return isinstance(answer[0], Exception)


def _looks(story: Story, number: int) -> list[Look]:
    """Say what to look at after a step; in a story that was shrunk, the last step shows what differs."""
    if number == len(story.steps) - 1:
        return [_jobs, _deadline, _stats, *([_queues] if story.definitions else [])]
    return [_jobs] if number % OFTEN == OFTEN - 1 else []


def _answer(player: Player, story: Story, step: Step, looks: Sequence[Look]) -> tuple[Any, Any]:
    answer = player.play(step)
    seen = {name: plain(value, player) for look in looks for name, value in look(player)}
    if isinstance(answer, Exception) and (isinstance(answer, StorageError) or not isinstance(answer, PgjqError)):
        return answer, seen
    return _free(story, step, plain(answer, player)), seen


def _jobs(player: Player) -> Iterator[tuple[str, Any]]:
    found, _ = player.operate("find", JobFilter(limit=1000))
    for queue in QUEUES:
        for number, job in enumerate(job for job in found if job.queue == queue):
            yield f"job {number} in {queue}", job


def _deadline(player: Player) -> Iterator[tuple[str, Any]]:
    yield "next deadline", player.operate("next_deadline")


def _stats(player: Player) -> Iterator[tuple[str, Any]]:
    for queue in QUEUES:
        yield f"statistics of {queue}", player.operate("stats", queue)


def _queues(player: Player) -> Iterator[tuple[str, Any]]:
    for info in player.operate("queues"):
        if info.name != FENCE:
            yield f"queue {info.name}", info


def _free(story: Story, step: Step, answer: Any) -> Any:
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
        case Answers() if isinstance(answer, list):
            return [a and (a[0], a[1] | ({"error": None} if a[1]["state"] in LIVE else {})) for a in answer]
        case Prune() if not story.definitions:
            return None
        case Find(queue=None) if isinstance(answer, list):
            return sorted((job for page in answer for job in page), key=lambda job: job[1]["queue"])
        case _:
            return answer


def _job_of(event: Any) -> tuple[str, str]:
    return event[1]["queue"], event[1]["id"]
