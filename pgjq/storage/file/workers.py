"""Worker files: who is there, for people to see. Nothing that holds jobs depends on them.

A worker has one file, which says what it is; that it was modified lately, by the storage's clock, says that the worker
lives. Files of workers that fell silent are removed by whoever looks, and by every worker that is new.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pgjq.job import WorkerInfo
from pgjq.storage.file import disk
from pgjq.storage.file.names import file_name

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence
    from pathlib import Path

    from pgjq.storage.file.layout import Layout

LAPSES = timedelta(seconds=60)


class Workers:
    """The files in `workers/`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._mine: dict[str, tuple[str, ...]] = {}

    def see(self, worker: str, queues: Sequence[str], now: datetime) -> None:
        """Note that a worker is there: a new time for the file it has, else a new file."""
        path = self._layout.workers / file_name(worker, ".worker")
        known = self._mine.get(worker)
        try:
            if known is not None and (not queues or tuple(sorted(queues)) == known):
                os.utime(path, (now.timestamp(), now.timestamp()))
                return
        except FileNotFoundError:
            pass
        self._mine[worker] = served = tuple(sorted(queues)) or known or ()
        self._write(path, worker, served, now)

    def _write(self, path: Path, worker: str, queues: tuple[str, ...], now: datetime) -> None:
        before = self._read(path)
        started = now if before is None else before.started_at
        content = {"id": worker, "queues": queues, "started_at": started.isoformat()}
        self._layout.workers.mkdir(parents=True, exist_ok=True)
        disk.replace(path, [json.dumps(content).encode()])
        os.utime(path, (now.timestamp(), now.timestamp()))
        self._lately(now)  # Nobody else may ever look.

    def seen(self, running: Counter[str | None], now: datetime) -> list[WorkerInfo]:
        """List those who were seen lately."""
        found = sorted(self._lately(now), key=lambda w: (w.started_at, w.id))
        return [WorkerInfo(w.id, w.queues, w.started_at, w.last_seen, running[w.id]) for w in found]

    def _lately(self, now: datetime) -> list[WorkerInfo]:
        paths = self._layout.workers.glob("[!.]*.worker")
        return [worker for path in paths if (worker := self._look(path, now)) is not None]

    def _look(self, path: Path, now: datetime) -> WorkerInfo | None:
        worker = self._read(path)
        if worker is None:
            return None
        if worker.last_seen <= now - LAPSES:
            path.unlink(missing_ok=True)
            return None
        return worker

    def _read(self, path: Path) -> WorkerInfo | None:
        try:
            content = json.loads(path.read_bytes())
            started = datetime.fromisoformat(content["started_at"])
            last_seen = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            return WorkerInfo(str(content["id"]), tuple(content["queues"]), started, last_seen, 0)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, IsADirectoryError):
            self._layout.move_aside(path, "this is no worker's file")
            return None
