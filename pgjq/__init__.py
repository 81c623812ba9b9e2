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
from pgjq.job import CancelResult, EnqueueResult, Event, JobError, JobStatus, NewJob, QueueStats, WorkerInfo, content_id
from pgjq.lease import LeasePolicy
from pgjq.migrate import migrate
from pgjq.open import open_storage
from pgjq.serde import JsonSerde, Serde
from pgjq.storage.memory import MemoryStorage
from pgjq.storage.postgres.storage import PostgresStorage

__version__ = version("pgjq")

__all__ = [
    "AsyncClient",
    "CancelResult",
    "Client",
    "EnqueueResult",
    "Event",
    "JobCancelledError",
    "JobError",
    "JobFailedError",
    "JobNotFoundError",
    "JobStatus",
    "JsonSerde",
    "LeaseLostError",
    "LeasePolicy",
    "MaxRetriesError",
    "MemoryStorage",
    "MissingExtraError",
    "NewJob",
    "Page",
    "PgjqError",
    "PolicyError",
    "PostgresStorage",
    "QueueNotFoundError",
    "QueueStats",
    "SchemaError",
    "Serde",
    "StorageError",
    "StorageUnavailableError",
    "TimeoutError",
    "UnsupportedError",
    "ValidationError",
    "WorkerInfo",
    "content_id",
    "migrate",
    "open_storage",
]
