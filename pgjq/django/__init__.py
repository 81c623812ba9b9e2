"""pgjq for Django: a tasks backend, migrations, a worker command, checks and the admin.

Add `"pgjq.django"` to INSTALLED_APPS, and name the backend in TASKS: `{"BACKEND": "pgjq.django.PgjqBackend"}`. The
names are imported at their first use: Django imports this package before its apps are loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgjq.django.backend import PgjqBackend
    from pgjq.django.task import PgjqTask

__all__ = ["PgjqBackend", "PgjqTask"]

_MODULE_OF = {"PgjqBackend": "pgjq.django.backend", "PgjqTask": "pgjq.django.task"}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
