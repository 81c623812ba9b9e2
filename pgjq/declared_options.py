"""The options of jobs and queues, each declared once.

Three typed dictionaries say where an option applies: `EnqueueOptions` for one job, `QueueChanges` for `update_queue`,
`QueueOptions` for `create_queue`. They share the options of `SharedOptions`, which a job may set for itself and a
queue's definition for its jobs. Type checkers read them as the signatures of `enqueue` and `create_queue`. Everything
else reads the annotations: checks, defaults, options of the command line, help texts.
`tests/unit/test_declared_options.py` compares with them what must be written by hand, and names what is missing.

None is "not set": the queue's definition applies to a job, then the worker's policy, then the default.
"""

# Annotations are values here: no `from __future__ import annotations`.

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, TypedDict

from pgjq.option_kinds import Boolean, Choice, Duration, Integer, Key, Kind, Moment, QueueName, TextMap
from pgjq.options import (
    DELETE_AFTER_SECONDS,
    MAX_ATTEMPTS,
    ON_FAILED,
    RESULT_TTL,
    RETENTION_SECONDS,
    SHORT_MAX,
    OnFailed,
)
from pgjq.policy import POLICIES, PolicyName

Seconds = float | timedelta


@dataclass(frozen=True, slots=True)
class Option:
    """What is declared about an option beside its name and its type."""

    kind: Kind
    help: str
    default: Any = None
    """The value that applies where neither a job nor a definition nor a worker's policy sets one."""


class SharedOptions(TypedDict, total=False):
    """Options that a job may set, and a queue's definition for its jobs."""

    retry_limit: Annotated[
        int | None, Option(Integer(0, SHORT_MAX - 1), "Retries after the first run.", MAX_ATTEMPTS - 1)
    ]
    retry_delay: Annotated[
        Seconds | None,
        Option(Duration(at_least=0), "Time before a retry; with retry_backoff, 1 second if it is 0.", 0.0),
    ]
    retry_backoff: Annotated[
        bool | None, Option(Boolean(), "Double the delay with every retry; half of it is random.", default=False)
    ]
    retry_delay_max: Annotated[Seconds | None, Option(Duration(at_least=0), "Longest delay of a backoff.")]
    heartbeat_seconds: Annotated[
        Seconds | None,
        Option(Duration(at_least=10), "Lease of a run, renewed every half of it; without it, the worker's policy."),
    ]
    expire_in_seconds: Annotated[
        Seconds | None, Option(Duration(at_least=1), "Longest time of a run, even if its worker is alive.", 900.0)
    ]
    retention_seconds: Annotated[
        Seconds | None,
        Option(Duration(at_least=1), "Time that a job may wait before it is deleted.", RETENTION_SECONDS),
    ]
    delete_after_seconds: Annotated[
        Seconds | None,
        Option(
            Duration(at_least=0), "Time that the record of an ended job is kept; 0 is for ever.", DELETE_AFTER_SECONDS
        ),
    ]
    dead_letter: Annotated[str | None, Option(QueueName(), "Queue for jobs that failed for good.")]


class CallOptions(SharedOptions, total=False):
    """Options that `enqueue` and tasks have in common; a task may make its key of its arguments."""

    priority: Annotated[int, Option(Integer(-SHORT_MAX), "Jobs with a higher priority run first.", 0)]
    delay: Annotated[Seconds | None, Option(Duration(at_least=0), "Run the job after this time at the earliest.")]
    run_at: Annotated[
        datetime | None, Option(Moment(), "Run the job at this time at the earliest (2026-01-31T09:30:00+01:00).")
    ]
    max_attempts: Annotated[
        int | None, Option(Integer(1), "Largest number of runs, the first one included.", MAX_ATTEMPTS)
    ]
    result_ttl: Annotated[Seconds | None, Option(Duration(above=0), "Time that the result can be read.", RESULT_TTL)]
    on_failed: Annotated[
        OnFailed, Option(Choice(ON_FAILED), "What an enqueue does with an id whose job has failed.", "enqueue")
    ]
    singleton_seconds: Annotated[
        Seconds | None, Option(Duration(at_least=1), "At most one job of a key in each time slot of this length.")
    ]
    singleton_next_slot: Annotated[
        bool, Option(Boolean(), "Run a job for which its time slot is taken in the next one.", default=False)
    ]
    debounce: Annotated[
        Seconds | None,
        Option(Duration(at_least=1), "Both singleton_seconds of this length and singleton_next_slot."),
    ]
    headers: Annotated[
        Mapping[str, str] | None, Option(TextMap(), "Metadata for middleware and tracing: text by name.")
    ]


class EnqueueOptions(CallOptions, total=False):
    """Options of `enqueue`, `send`, `enqueue_and_wait` and `NewJob`."""

    singleton_key: Annotated[str | None, Option(Key(), "Key that the queue's policy counts by.")]


class QueueChanges(SharedOptions, total=False):
    """Options of `update_queue`. None removes an option from the definition."""

    warning_queue_size: Annotated[
        int | None, Option(Integer(1, 2**31 - 1), "Emit a warning event, once, when more jobs than this wait.")
    ]


class QueueOptions(QueueChanges, total=False):
    """Options of `create_queue`. The last two cannot be changed later."""

    policy: Annotated[
        PolicyName, Option(Choice(POLICIES), "How many jobs of a key may be in which state.", default="standard")
    ]
    partition: Annotated[
        bool, Option(Boolean(), "Give the queue tables of its own: others stay fast, and it is deleted at once.", False)
    ]


def declared(options: type) -> Mapping[str, Option]:
    """Return the declarations of a typed dictionary by name, those that it inherits first."""
    return {name: annotation.__metadata__[0] for name, annotation in options.__annotations__.items()}


SHARED_OPTIONS: Final = declared(SharedOptions)
ENQUEUE_OPTIONS: Final = declared(EnqueueOptions)
QUEUE_CHANGES: Final = declared(QueueChanges)
QUEUE_OPTIONS: Final = declared(QueueOptions)
