"""Django's tasks framework: `django.tasks`, or else the package `django-tasks`.

The two have the same classes under slightly different names; every other module takes them from here. Django has no
annotations of its own, so everything is Any.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

IS_BUILT_IN: Final = find_spec("django.tasks") is not None
if not IS_BUILT_IN and find_spec("django_tasks") is None:
    raise ImportError("this Django has no tasks framework: pip install django-tasks, or Django 6")

_NAME: Final = "django.tasks" if IS_BUILT_IN else "django_tasks"
_base: Any = import_module(f"{_NAME}.base")
_exceptions: Any = import_module(f"{_NAME}.exceptions")
_signals: Any = import_module(f"{_NAME}.signals")
_json: Any = import_module("django.utils.json" if IS_BUILT_IN else "django_tasks.utils")

BaseTaskBackend: Any = import_module(f"{_NAME}.backends.base").BaseTaskBackend
InvalidTask: Any = _exceptions.InvalidTask if IS_BUILT_IN else _exceptions.InvalidTaskError
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
TaskResultStatus: Any = _base.TaskResultStatus
normalize_json: Any = _json.normalize_json
task_backends: Any = import_module(_NAME).task_backends
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished
