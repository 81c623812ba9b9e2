"""Check the options of a new job, and resolve them into `Settings`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, cast

from pgjq.declared_options import ENQUEUE_OPTIONS
from pgjq.errors import ValidationError
from pgjq.job import NewJob
from pgjq.options import DEFAULT_SETTINGS, JobOptions, Settings

if TYPE_CHECKING:
    from pgjq.declared_options import EnqueueOptions

_FIELDS: Final = {field.name: field for field in fields(NewJob)}
_KEPT: Final = frozenset(field.name for field in fields(JobOptions))
# Name, check, and the value of `NewJob` that stands for "not set": of options that `JobOptions` has, and of the others.
# Headers are stored beside the settings: jobs of a batch mostly share these, and seldom those.
_ALL: Final = [
    (name, option.kind.check, _FIELDS[name].default) for name, option in ENQUEUE_OPTIONS.items() if name != "headers"
]
_KEPT_CHECKS: Final = tuple(option for option in _ALL if option[0] in _KEPT)
_CHECKS: Final = tuple(option for option in _ALL if option[0] not in _KEPT)


def new_job(job_id: str | None, payload: Any, options: EnqueueOptions) -> NewJob:
    """Build a NewJob; the ValidationError for an unknown option lists the known ones."""
    try:
        return NewJob(job_id, payload, **options)
    except TypeError as error:
        known = [name for name in _FIELDS if name in ENQUEUE_OPTIONS]
        unknown = sorted(set(options) - set(known))
        raise ValidationError(f"unknown option {', '.join(unknown)}; the options are {', '.join(known)}") from error


def settings(job: NewJob, defaults: Settings = DEFAULT_SETTINGS) -> Settings:
    """Check and resolve a job's options; those not set come from `defaults`."""
    if job.run_at is not None and job.delay is not None:
        raise ValidationError("pass run_at or delay, not both")
    given: dict[str, Any] = {n: check(n, v) for n, check, unset in _CHECKS if (v := getattr(job, n)) is not unset}
    kept: dict[str, Any] = {n: check(n, v) for n, check, unset in _KEPT_CHECKS if (v := getattr(job, n)) is not unset}
    if kept:
        given["options"] = JobOptions(**kept)
    if job.backoff_by_default:
        given["backoff_by_default"] = True
    return Settings(**_resolve(given, defaults)) if given else defaults


def _resolve(given: dict[str, Any], defaults: Settings) -> dict[str, Any]:
    """Replace the options that stand for others, and add those of `defaults`."""
    if "retry_limit" in given:
        given["max_attempts"] = _max_attempts(given)
    if "debounce" in given or "singleton_next_slot" in given:
        _resolve_slot(given)
    if "result_ttl" not in given:
        given["result_ttl"] = defaults.result_ttl
    if "max_attempts" not in given:
        given["max_attempts"] = defaults.max_attempts
    return given


def _max_attempts(given: dict[str, Any]) -> int:
    """Remove `retry_limit`; return the attempts that it means, with which `max_attempts` agrees."""
    limit = given.pop("retry_limit")
    attempts = given.get("max_attempts", limit + 1)
    if attempts != limit + 1:
        raise ValidationError(
            f"max_attempts={attempts} and retry_limit={limit} disagree: max_attempts is retry_limit + 1"
        )
    return attempts


def _resolve_slot(given: dict[str, Any]) -> None:
    """Replace `debounce`, which is both of the other options."""
    if "debounce" in given:
        if "singleton_seconds" in given:
            raise ValidationError("pass debounce or singleton_seconds, not both")
        given["singleton_seconds"] = given.pop("debounce")
        given["singleton_next_slot"] = True
    elif "singleton_seconds" not in given:
        raise ValidationError("singleton_next_slot needs singleton_seconds: how long a slot is")


def without_connection(options: EnqueueOptions) -> EnqueueOptions:
    """Return the options of a call that waits for its job, which cannot have a connection."""
    given = cast("dict[str, Any]", options)
    if given.get("connection") is not None:
        raise ValidationError(
            "connection= and waiting exclude each other: the job does not exist before that connection commits;"
            " enqueue, commit, and then enqueue_and_wait with the same id"
        )
    return cast("EnqueueOptions", {name: value for name, value in given.items() if name != "connection"})
