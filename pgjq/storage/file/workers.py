"""Worker files: the worker records of a directory, for display. No job depends on them.

A registration has one file, which names the worker; its modification time, by the storage's clock, is when the worker
was last seen. A worker that stops removes its file, and pruning removes the files of workers that were killed.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pgjq.storage.file import disk
from pgjq.storage.file.file_names import file_name
from pgjq.storage.workers import Registration, WorkerRecord

if TYPE_CHECKING:
    from pathlib import Path

    from pgjq.storage.file.layout import Layout


class WorkerFiles:
    """The files in `workers/`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def seen(self, registration: Registration, now: datetime) -> None:
        """Set the file's modification time; write the file if it is missing."""
        path = self._path(registration)
        if self._read(path) is None:
            self._layout.workers.mkdir(disk.PRIVATE_FOLDER, parents=True, exist_ok=True)
            disk.replace(path, [_text(registration, now)])
        os.utime(path, (now.timestamp(), now.timestamp()))

    def stopped(self, registration: Registration) -> None:
        """Remove the file."""
        self._path(registration).unlink(missing_ok=True)

    def records(self) -> list[WorkerRecord]:
        """Read all files."""
        return [record for _, record in self._files()]

    def prune(self, now: datetime) -> None:
        """Remove old files."""
        for path, record in self._files():
            if record.is_old(now):
                path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[Path, WorkerRecord]]:
        paths = self._layout.workers.glob("[!.]*.worker")
        return [(path, record) for path in paths if (record := self._read(path)) is not None]

    def _path(self, registration: Registration) -> Path:
        return self._layout.workers / file_name(f"{registration.worker}-{registration.id}", ".worker")

    def _read(self, path: Path) -> WorkerRecord | None:
        try:
            content = json.loads(path.read_bytes())
            registration = Registration(
                str(content["registration"]),
                str(content["worker"]),
                tuple(map(str, content["queues"])),
                float(content["heartbeat"]),
            )
            started_at = datetime.fromisoformat(content["started_at"])
            return WorkerRecord(registration, started_at, datetime.fromtimestamp(path.stat().st_mtime, UTC))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, IsADirectoryError):
            self._layout.move_aside(path, "this is no worker's file")
            return None


def _text(registration: Registration, now: datetime) -> bytes:
    content = {
        "worker": registration.worker,
        "queues": registration.queues,
        "started_at": now.isoformat(),
        "heartbeat": registration.heartbeat,
        "registration": registration.id,
    }
    return json.dumps(content).encode()
