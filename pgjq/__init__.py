"""pgjq: a job queue for Python on PostgreSQL, with leases that hold."""

from importlib.metadata import version

from pgjq.client import AsyncClient, Client, Page
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
from pgjq.job import (
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
from pgjq.migrate import migrate
from pgjq.open import open_storage
from pgjq.outcome import Discard, Retry, Snooze
from pgjq.queue import AsyncQueue, Queue, Worker
from pgjq.reaper import Reaper
from pgjq.serde import JsonSerde, MsgpackSerde, Serde
from pgjq.storage.file.storage import FileStorage
from pgjq.storage.memory import MemoryStorage
from pgjq.storage.postgres.storage import PostgresStorage
from pgjq.storage.redis.storage import RedisStorage
from pgjq.worker.leader import LeaderElection
from pgjq.worker.run import AsyncJob, Job

__version__ = version("pgjq")

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "AsyncQueue",
    "CancelResult",
    "Client",
    "Discard",
    "EnqueueResult",
    "Event",
    "FileStorage",
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
    "QueueInfo",
    "QueueNotFoundError",
    "QueueStats",
    "Reaper",
    "RedisStorage",
    "Retry",
    "SchemaError",
    "Serde",
    "Snooze",
    "StorageError",
    "StorageUnavailableError",
    "TimeoutError",
    "UnsupportedError",
    "ValidationError",
    "Worker",
    "WorkerInfo",
    "content_id",
    "migrate",
    "open_storage",
]
