"""Leader election: a lock file for each role, with an owner, an expiry and a term.

* Everything happens under the directory's lock, so reading a file and acting on it are one step: exactly one candidate
  takes a free or expired leadership.
* An expiry farther away than the term was written before the clock was set back. It is set to a full term from now, so
  that no second candidate leads beside a live leader, and a dead leader does not block the role until the clock has
  caught up.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from pgjq.storage.file import disk
from pgjq.storage.file.file_names import file_name

if TYPE_CHECKING:
    from pathlib import Path

    from pgjq.storage.file.layout import Layout


class LeaderRecord(NamedTuple):
    """The content of a lock file."""

    owner: str
    expires_at: datetime
    ttl: float


class Leaders:
    """The files in `leaders/`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._held: set[tuple[str, str]] = set()

    def elect(self, role: str, candidate: str, ttl: float, now: datetime) -> bool:
        """Take a free or expired leadership, or renew the candidate's own; return whether it leads."""
        self._held.discard((role, candidate))
        path = self._path(role)
        record = self._read(path, now)
        if record is not None and record.owner != candidate and record.expires_at > now:
            return False
        mine = LeaderRecord(candidate, now + timedelta(seconds=ttl), ttl)
        if record is None:
            disk.create(path, _text(mine))
        else:
            disk.replace(path, _text(mine))
        self._held.add((role, candidate))
        return True

    def leads(self, role: str, candidate: str) -> bool:
        """Return whether a candidate of this process won its last election; does not read the disk."""
        return (role, candidate) in self._held

    def resign(self, role: str, candidate: str, now: datetime) -> None:
        """Give up the leadership, if it is the candidate's."""
        self._held.discard((role, candidate))
        path = self._path(role)
        record = self._read(path, now)
        if record is not None and record.owner == candidate:
            path.unlink()

    def _path(self, role: str) -> Path:
        return self._layout.leaders / file_name(role, ".lock")

    def _read(self, path: Path, now: datetime) -> LeaderRecord | None:
        try:
            content = json.loads(path.read_bytes())
            record = LeaderRecord(
                content["owner"], datetime.fromisoformat(content["expires_at"]), float(content["ttl"])
            )
            latest = now + timedelta(seconds=record.ttl)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OverflowError, IsADirectoryError):
            self._layout.move_aside(path, "this is no leader's lock")
            return None
        if record.expires_at > latest:
            record = record._replace(expires_at=latest)
            disk.replace(path, _text(record))
        return record


def _text(record: LeaderRecord) -> list[bytes]:
    content = {"owner": record.owner, "expires_at": record.expires_at.isoformat(), "ttl": record.ttl}
    return [json.dumps(content).encode()]
