"""pgjq: a job queue for Python on PostgreSQL, with leases and fencing.

`__all__` lists the public names. `import pgjq` loads the errors and nothing else: every other name is imported at its
first use (PEP 562), so that a producer does not pay for the worker, nor a user of Redis for psycopg.

`pgjq.migrate` is a function and also the name of its module. The import system binds a module that is imported for the
first time over the function, so `__init__` imports the module at once and then the function; the module itself imports
psycopg, alembic and SQLAlchemy only when a function of it is called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pgjq.errors import (
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    LeaseLostError,
    MaxRetriesError,
    MissingExtraError,
    PgjqError,
    PolicyError,
    QueueNotFoundError,
    SchemaError,
    StorageError,
    StorageUnavailableError,
    TimeoutError,
    UnsupportedError,
    ValidationError,
)
from pgjq.migrate import migrate

if TYPE_CHECKING:
    from pgjq.client import AsyncClient, Client
    from pgjq.client_reads import Page
    from pgjq.declared_options import EnqueueOptions, QueueChanges, QueueOptions
    from pgjq.job import (
        Attempt,
        CancelResult,
        EnqueueResult,
        Event,
        JobError,
        JobSource,
        JobStatus,
        NewJob,
        QueueInfo,
        QueueStats,
        WorkerInfo,
        content_id,
    )
    from pgjq.lease import LeasePolicy
    from pgjq.open import open_storage
    from pgjq.outcome import Discard, Retry, Snooze
    from pgjq.queue import AsyncQueue, Queue, Worker
    from pgjq.reaper import Reaper
    from pgjq.schedules.schedule import ScheduleInfo, ScheduleTick
    from pgjq.serde import JsonSerde, MsgpackSerde, Serde
    from pgjq.storage.file.storage import FileStorage
    from pgjq.storage.memory import MemoryStorage
    from pgjq.storage.postgres.storage import PostgresStorage
    from pgjq.storage.redis.storage import RedisStorage
    from pgjq.tasks.call import Call
    from pgjq.tasks.depends import Depends, using_dependencies
    from pgjq.tasks.handle import AsyncHandle, Handle
    from pgjq.tasks.task import AsyncTask, Task
    from pgjq.worker.current_job import current_job
    from pgjq.worker.handler import Done
    from pgjq.worker.job import AsyncJob, Job
    from pgjq.worker.leadership import LeaderElection

    __version__: str

__all__ = [
    "AsyncClient",
    "AsyncHandle",
    "AsyncJob",
    "AsyncQueue",
    "AsyncTask",
    "Attempt",
    "Call",
    "CancelResult",
    "Client",
    "Depends",
    "Discard",
    "Done",
    "EnqueueOptions",
    "EnqueueResult",
    "Event",
    "FileStorage",
    "Handle",
    "Job",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobNotFoundError",
    "JobSource",
    "JobStatus",
    "JsonSerde",
    "LeaderElection",
    "LeaseLostError",
    "LeasePolicy",
    "MaxRetriesError",
    "MemoryStorage",
    "MissingExtraError",
    "MsgpackSerde",
    "NewJob",
    "Page",
    "PgjqError",
    "PolicyError",
    "PostgresStorage",
    "Queue",
    "QueueChanges",
    "QueueInfo",
    "QueueNotFoundError",
    "QueueOptions",
    "QueueStats",
    "Reaper",
    "RedisStorage",
    "Retry",
    "ScheduleInfo",
    "ScheduleTick",
    "SchemaError",
    "Serde",
    "Snooze",
    "StorageError",
    "StorageUnavailableError",
    "Task",
    "TimeoutError",
    "UnsupportedError",
    "ValidationError",
    "Worker",
    "WorkerInfo",
    "content_id",
    "current_job",
    "migrate",
    "open_storage",
    "using_dependencies",
]

# Names that are imported at their first use, by module. Keep in line with the imports for type checkers above.
_NAMES = {
    "pgjq.client": ("AsyncClient", "Client"),
    "pgjq.client_reads": ("Page",),
    "pgjq.declared_options": ("EnqueueOptions", "QueueChanges", "QueueOptions"),
    "pgjq.job": (
        *("Attempt", "CancelResult", "EnqueueResult", "Event", "JobError", "JobSource", "JobStatus", "NewJob"),
        *("QueueInfo", "QueueStats", "WorkerInfo", "content_id"),
    ),
    "pgjq.lease": ("LeasePolicy",),
    "pgjq.open": ("open_storage",),
    "pgjq.outcome": ("Discard", "Retry", "Snooze"),
    "pgjq.queue": ("AsyncQueue", "Queue", "Worker"),
    "pgjq.reaper": ("Reaper",),
    "pgjq.schedules.schedule": ("ScheduleInfo", "ScheduleTick"),
    "pgjq.serde": ("JsonSerde", "MsgpackSerde", "Serde"),
    "pgjq.storage.file.storage": ("FileStorage",),
    "pgjq.storage.memory": ("MemoryStorage",),
    "pgjq.storage.postgres.storage": ("PostgresStorage",),
    "pgjq.storage.redis.storage": ("RedisStorage",),
    "pgjq.tasks.call": ("Call",),
    "pgjq.tasks.depends": ("Depends", "using_dependencies"),
    "pgjq.tasks.handle": ("AsyncHandle", "Handle"),
    "pgjq.tasks.task": ("AsyncTask", "Task"),
    "pgjq.worker.current_job": ("current_job",),
    "pgjq.worker.handler": ("Done",),
    "pgjq.worker.leadership": ("LeaderElection",),
    "pgjq.worker.job": ("AsyncJob", "Job"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, and cache it in this module."""
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("pgjq")
    elif name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, including those not imported yet."""
    return sorted({*globals(), *__all__, "__version__"})
