"""What the client and the storage have, each asked in one place: pages show what is there."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pgjq.client import AsyncClient
from pgjq.job import JobStatus

if TYPE_CHECKING:
    from pgjq.storage.base import Storage


@dataclass(frozen=True, slots=True)
class Features:
    """Parts of the page that depend on what else there is."""

    tasks: bool
    schedules: bool
    attempts: bool
    doctor: bool
    definitions: bool


def features_of(storage: Storage) -> Features:
    """Return what can be shown of a storage."""
    definitions = storage.capabilities.definitions
    return Features(
        tasks="task" in JobStatus.__dataclass_fields__,
        schedules=definitions and hasattr(AsyncClient, "get_schedules"),
        attempts=hasattr(AsyncClient, "get_attempts"),
        doctor=find_spec("pgjq.doctor") is not None,
        definitions=definitions,
    )
