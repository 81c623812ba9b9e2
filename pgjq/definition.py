"""Queue definitions: allowed options, their checks and their defaults.

A definition holds only the options that were set. Jobs copy them when they are enqueued, so a change applies to future
jobs only. For an option that neither the job nor the definition sets, the worker's policy applies, then the default.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError
from pgjq.job import QueueInfo
from pgjq.options import (
    DELETE_AFTER_SECONDS,
    MAX_ATTEMPTS,
    RETENTION_SECONDS,
    SHORT_MAX,
    JobOptions,
    check_bool,
    check_int,
    check_queue,
    check_seconds,
)
from pgjq.policy import POLICIES, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from pgjq.job import QueueStats
    from pgjq.options import Settings

# The options of a definition and their defaults.
DEFAULTS: Final[dict[str, Any]] = {
    "retry_limit": MAX_ATTEMPTS - 1,
    "retry_delay": 0.0,
    "retry_backoff": False,
    "retry_delay_max": None,
    "heartbeat_seconds": None,
    "expire_in_seconds": 900.0,
    "retention_seconds": RETENTION_SECONDS,
    "delete_after_seconds": DELETE_AFTER_SECONDS,
    "dead_letter": None,
}
_AT_LEAST: Final = {
    "retry_delay": 0,
    "retry_delay_max": 0,
    "heartbeat_seconds": 10,
    "expire_in_seconds": 1,
    "retention_seconds": 1,
    "delete_after_seconds": 0,
}


@dataclass(frozen=True, slots=True)
class Definition:
    """Arguments of `create_queue`. `options` holds those that were set, by their `DEFAULTS` names."""

    policy: Policy = "standard"
    partition: bool = False
    warning_queue_size: int | None = None
    options: dict[str, Any] = field(default_factory=dict[str, Any])


def define(
    name: str, *, policy: Any, partition: Any, warning_queue_size: Any = None, options: Mapping[str, Any]
) -> Definition:
    """Check the arguments of `create_queue`; None means not set."""
    if policy not in POLICIES:
        raise ValidationError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
    check_bool("partition", partition)
    checked = check_changes(name, {"warning_queue_size": warning_queue_size, **options})
    size = checked.pop("warning_queue_size")
    return Definition(policy, partition, size, {k: v for k, v in checked.items() if v is not None})


def check_changes(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Check the changes of `update_queue`; None unsets an option."""
    for fixed in ("policy", "partition"):
        if fixed in changes:
            raise ValidationError(f"{fixed} cannot be changed; make another queue with it, and let this one run dry")
    unknown = sorted(set(changes) - set(DEFAULTS) - {"warning_queue_size"})
    if unknown:
        known = ", ".join([*DEFAULTS, "warning_queue_size"])
        raise ValidationError(f"unknown option {', '.join(unknown)}; the options are {known}")
    return {option: None if value is None else _check(name, option, value) for option, value in changes.items()}


def _check(name: str, option: str, value: Any) -> Any:
    match option:
        case "warning_queue_size":
            return check_int(option, value, 1, 2**31 - 1)
        case "retry_limit":
            return check_int(option, value, 0, SHORT_MAX - 1)
        case "retry_backoff":
            return check_bool(option, value)
        case "dead_letter":
            return check_dead_letter(name, value)
        case _:
            return check_seconds(option, value, at_least=_AT_LEAST[option])


def check_dead_letter(queue: str, dead_letter: Any) -> str:
    """Return the name of the dead letter queue; it must differ from the queue."""
    if check_queue(dead_letter) == queue:
        raise ValidationError(f"queue {queue!r} cannot be its own dead letter")
    return dead_letter


def inherit(settings: Settings, inherited: Mapping[str, Any]) -> Settings:
    """Fill in options that a queue's definition sets and a job does not, and then the defaults of a task's job."""
    if not inherited and not settings.backoff_by_default:
        return settings
    limit = inherited.get("retry_limit")
    defaults = {"retry_backoff": True} if settings.backoff_by_default else {}
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
