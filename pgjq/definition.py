"""Queue definitions: allowed options, their checks and their defaults.

A definition holds only the options that were set. Jobs copy them when they are enqueued, so a change applies to future
jobs only. For an option that neither the job nor the definition sets, the worker's policy applies, then the default.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pgjq.declared_options import QUEUE_CHANGES, QUEUE_OPTIONS, SHARED_OPTIONS
from pgjq.errors import ValidationError
from pgjq.job import QueueInfo
from pgjq.options import JobOptions, check_queue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pgjq.declared_options import Option, QueueChanges, QueueOptions
    from pgjq.job import QueueStats
    from pgjq.options import Settings
    from pgjq.policy import PolicyName

# The options of a definition that jobs inherit, and their defaults.
DEFAULTS: Final[dict[str, Any]] = {name: option.default for name, option in SHARED_OPTIONS.items()}
# How many results of `inherit` are kept.
REMEMBERED: Final = 1024
_inherited: dict[int, tuple[Settings, Mapping[str, Any], Settings]] = {}
# Those of the queue itself; of these, the ones that cannot be changed.
_OWN: Final = tuple(name for name in QUEUE_OPTIONS if name not in SHARED_OPTIONS)
_FIXED: Final = tuple(name for name in QUEUE_OPTIONS if name not in QUEUE_CHANGES)


@dataclass(frozen=True, slots=True)
class Definition:
    """Arguments of `create_queue`; `options` holds those that were set, by their names."""

    policy: PolicyName = "standard"
    partition: bool = False
    warning_queue_size: int | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def define(name: str, options: QueueOptions) -> Definition:
    """Check the options of `create_queue`; None means not set."""
    _check_known(options, QUEUE_OPTIONS)
    checked = {option: _check(name, option, value) for option, value in options.items()}
    named = {option: checked.pop(option) for option in _OWN if option in checked}
    return Definition(**named, options={option: value for option, value in checked.items() if value is not None})


def check_changes(name: str, changes: QueueChanges) -> dict[str, Any]:
    """Check the changes of `update_queue`; None unsets an option."""
    for fixed in _FIXED:
        if fixed in changes:
            raise ValidationError(f"{fixed} cannot be changed; create another queue with it, and drain this one")
    _check_known(changes, QUEUE_CHANGES)
    return {option: _check(name, option, value) for option, value in changes.items()}


def _check_known(given: Mapping[str, Any], known: Mapping[str, Option]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValidationError(f"unknown option {', '.join(unknown)}; the options are {', '.join(known)}")


def _check(name: str, option: str, value: Any) -> Any:
    if value is None and option not in _FIXED:
        return None
    checked = QUEUE_OPTIONS[option].kind.check(option, value)
    return check_dead_letter(name, checked) if option == "dead_letter" else checked


def check_dead_letter(queue: str, dead_letter: Any) -> str:
    """Return the name of the dead letter queue; it must differ from the queue."""
    if check_queue(dead_letter) == queue:
        raise ValidationError(f"queue {queue!r} cannot be its own dead letter")
    return dead_letter


def _retried_with_backoff(settings: Settings) -> Settings:
    """Return the settings of a task's job in a queue without definition."""
    options = (
        settings.options
        if settings.options.retry_backoff is not None
        else replace(settings.options, retry_backoff=True)
    )
    return replace(settings, options=options, backoff_by_default=False)


def inherit(settings: Settings, inherited: Mapping[str, Any]) -> Settings:
    """Fill in the options that a job does not set: from its queue, then the defaults.

    Jobs of a task share one object of settings, and here they get one object again. Results are found by that identity:
    a hash of all fields takes longer than the rest of an enqueue on a MemoryStorage.
    """
    if not inherited and not settings.backoff_by_default:
        return settings
    found = _inherited.get(id(settings))
    if found is None or found[0] is not settings or found[1] is not inherited:
        if len(_inherited) >= REMEMBERED:
            _inherited.clear()
        found = _inherited[id(settings)] = settings, inherited, _inherit(settings, inherited)
    return found[2]


def _inherit(settings: Settings, inherited: Mapping[str, Any]) -> Settings:
    if not inherited:
        return _retried_with_backoff(settings)
    limit = inherited.get("retry_limit")
    defaults: dict[str, Any] = {"retry_backoff": True} if settings.backoff_by_default else {}
    options = {name: value for name, value in inherited.items() if name != "retry_limit"}
    return replace(
        settings,
        max_attempts=settings.max_attempts or (None if limit is None else limit + 1),
        options=JobOptions(**defaults | options | settings.options.set_values()),
        backoff_by_default=False,
    )


def in_force(
    name: str, definition: Definition, *, created_at: datetime, paused: bool, stats: QueueStats | None
) -> QueueInfo:
    """Return a queue with its effective values."""
    return QueueInfo(
        name=name,
        policy=definition.policy,
        partition=definition.partition,
        warning_queue_size=definition.warning_queue_size,
        paused=paused,
        created_at=created_at,
        stats=stats,
        **(DEFAULTS | definition.options),
    )
