"""Django's Task with pgjq's options, as `@task(max_attempts=5)` or `receipt.using(…)`."""

# pyright: basic

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pgjq.django.settings import TASK_OPTIONS
from pgjq.django.tasks_framework import Task
from pgjq.errors import ValidationError
from pgjq.ids import make_ids
from pgjq.job_settings import settings
from pgjq.tasks.arguments import Arguments
from pgjq.tasks.call import TaskJob
from pgjq.tasks.retrying import RULES, RetryRule, make_rule, to_headers
from pgjq.tasks.task import TEMPLATES
from pgjq.tasks.templates import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_backoffs: dict[str, dict[str, Any]] = {}  # The functions of every `using(backoff=…)`, by the task and their name.


def _using(self: Any, **options: Any) -> Any:
    """Return this task with other options: Django's and pgjq's."""
    ours = {name: value for name, value in options.items() if name in TASK_OPTIONS}
    headers = to_headers(ours, _backoffs.setdefault(self.module_path, {}))
    if headers:
        ours["headers"] = {**(ours.get("headers", self.headers) or {}), **headers}
    changed = Task.using(self, **{name: value for name, value in options.items() if name not in ours})
    return replace(changed, **ours) if ours else changed


def _chosen(self: Any) -> dict[str, Any]:
    """Return the options of pgjq that this task sets."""
    return {name: value for name in TASK_OPTIONS if (value := getattr(self, name)) is not None}


# The options are declared in pgjq.declared_options; None is "not set".
PgjqTask: Any = make_dataclass(
    "PgjqTask",
    [(name, Any, field(default=None, repr=False)) for name in TASK_OPTIONS],
    bases=(Task,),
    namespace={"__module__": __name__, "using": _using, "chosen_options": _chosen, "__hash__": object.__hash__},
    frozen=True,
    kw_only=True,
    slots=True,
)


@dataclass(frozen=True)
class Plan:
    """The checked options of a task: of its jobs, for ids and keys, and which errors retry."""

    job_options: Mapping[str, Any]
    id: Template | None
    singleton_key: Template | None
    rule: RetryRule

    def new_job(self, payload: Any, args: Any, kwargs: Any, **options: Any) -> TaskJob:
        """Return the job of a call."""
        key = None if self.singleton_key is None else self.singleton_key.fill(args, kwargs)
        job_id = None if self.id is None else self.id.fill(args, kwargs)
        return TaskJob(job_id or next(make_ids()), payload, singleton_key=key, **{**self.job_options, **options})


def make_plan(task: Any, given: Mapping[str, Any]) -> Plan:
    """Check the options of a task; ValidationError if one of them is invalid."""
    if len(task.module_path) > 128:  # noqa: PLR2004
        raise ValidationError(f"the path of a task has at most 128 characters: {task.module_path}")
    arguments = _arguments(task.func, task.takes_context)
    templates = {name: Template(name, given[name], arguments) for name in TEMPLATES if given.get(name) is not None}
    job_options = {name: value for name, value in given.items() if name not in (*RULES, *TEMPLATES)}
    settings(TaskJob(None, None, **job_options))
    known = _backoffs.setdefault(task.module_path, {})
    rule = make_rule(given, task.func.__module__, known)
    return Plan(job_options, templates.get("id"), templates.get("singleton_key"), rule)


@lru_cache(maxsize=1024)
def _arguments(function: Callable[..., Any], takes_context: bool) -> Arguments:  # noqa: FBT001
    arguments = Arguments(function, function.__qualname__, {})
    if takes_context:
        _, *parameters = arguments.signature.parameters.values()
        arguments.signature = arguments.signature.replace(parameters=parameters)
    return arguments
