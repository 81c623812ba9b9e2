"""Test your jobs; conformance suites for storages and workers; clocks that tests move.

The helpers (`drain`, `run`, `capture`, …) work with pytest, unittest and others. The suites need pytest. Every name is
imported at its first use, so that the pytest plugin costs a project nothing that it does not use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgjq.testing.capturing import Capture, EnqueuedJob, assert_enqueued, capture, refute_enqueued
    from pgjq.testing.clock import Clock, ManualClock, PostgresClock, RedisClock
    from pgjq.testing.databases import load_schema
    from pgjq.testing.draining import drain, run
    from pgjq.testing.faults import WorkerCrash, crash_after, lose_lease
    from pgjq.testing.replace_storage import use_connection, use_storage
    from pgjq.testing.storage.conformance import StorageConformance
    from pgjq.testing.worker.conformance import WorkerConformance

__all__ = [
    "Capture",
    "Clock",
    "EnqueuedJob",
    "ManualClock",
    "PostgresClock",
    "RedisClock",
    "StorageConformance",
    "WorkerConformance",
    "WorkerCrash",
    "assert_enqueued",
    "capture",
    "crash_after",
    "drain",
    "load_schema",
    "lose_lease",
    "refute_enqueued",
    "run",
    "use_connection",
    "use_storage",
]

_NAMES = {
    "capturing": ("Capture", "EnqueuedJob", "assert_enqueued", "capture", "refute_enqueued"),
    "clock": ("Clock", "ManualClock", "PostgresClock", "RedisClock"),
    "databases": ("load_schema",),
    "draining": ("drain", "run"),
    "faults": ("WorkerCrash", "crash_after", "lose_lease"),
    "replace_storage": ("use_connection", "use_storage"),
    "storage.conformance": ("StorageConformance",),
    "worker.conformance": ("WorkerConformance",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, including those not imported yet."""
    return sorted({*globals(), *__all__})
