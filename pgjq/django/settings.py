"""The OPTIONS of a backend in TASKS: its storage, and default options of its tasks."""

# pyright: basic

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings as django_settings
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from pgjq.declared_options import ENQUEUE_OPTIONS
from pgjq.errors import ValidationError
from pgjq.options import DELETE_AFTER_SECONDS
from pgjq.tasks.retrying import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BACKEND: Final = "pgjq.django.PgjqBackend"
# Options of jobs that tasks have: Django has names of its own for the priority and for the time.
TASK_OPTIONS: Final = (*(name for name in ENQUEUE_OPTIONS if name not in ("priority", "run_at")), "id", *RULES)
# A result can be read as long as the job's record exists, unless `result_ttl` says otherwise.
DEFAULTS: Final = {"result_ttl": DELETE_AFTER_SECONDS}


@dataclass(frozen=True)
class BackendSettings:
    """The OPTIONS of one backend, by their names in lower case."""

    database: str = DEFAULT_DB_ALIAS
    schema: str = "pgjq"
    storage: str | None = None
    """The URL of a storage other than the Django database: `memory:`, `redis://…`."""
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of single tasks, by their dotted path."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Options of all tasks of this backend."""

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> BackendSettings:
        """Check the OPTIONS; ValidationError for an unknown one."""
        own = {name: options[name] for name in ("database", "schema", "storage", "tasks") if name in options}
        defaults = {name: value for name, value in options.items() if name not in own}
        check_names(defaults, "OPTIONS")
        for path, values in own.get("tasks", {}).items():
            check_names(values, f"OPTIONS['tasks'][{path!r}]")
        return cls(**own, defaults=DEFAULTS | defaults)

    def options_of(self, path: str) -> dict[str, Any]:
        """Return the options that these settings give to a task."""
        return {**self.defaults, **self.tasks.get(path, {})}


def check_names(options: Mapping[str, Any], where: str) -> None:
    """Raise ValidationError for options that tasks do not have."""
    unknown = sorted(set(options) - set(TASK_OPTIONS))
    if unknown:
        raise ValidationError(f"unknown option {', '.join(unknown)} in {where}; tasks have {', '.join(TASK_OPTIONS)}")


def all_settings() -> Iterator[BackendSettings]:
    """Read the settings of every pgjq backend in TASKS; system checks report invalid ones."""
    for params in getattr(django_settings, "TASKS", {}).values():
        if _is_ours(params.get("BACKEND", "")):
            try:
                yield BackendSettings.read(params.get("OPTIONS", {}))
            except ValidationError:
                continue


def _is_ours(path: str) -> bool:
    if path == BACKEND:
        return True
    from pgjq.django.backend import PgjqBackend

    try:
        backend = import_string(path)
    except ImportError:
        return False
    return isinstance(backend, type) and issubclass(backend, PgjqBackend)


def schemas_of(database: str) -> list[str]:
    """Return the schemas of pgjq in a database of Django's, in the order of TASKS."""
    found = [own.schema for own in all_settings() if own.storage is None and own.database == database]
    return list(dict.fromkeys(found))


def first_place() -> BackendSettings:
    """Return the settings of the first backend with a Django database, which the admin shows."""
    return next((own for own in all_settings() if own.storage is None), BackendSettings())
