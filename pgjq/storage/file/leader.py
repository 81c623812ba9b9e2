"""Leaders: a lock file for each office, created exclusively, with an expiry.

All of this happens under the directory's lock, so looking at a file and acting on what it says are one step: of those
who find an office vacant or lapsed one takes it, and the others find it taken. A file names its owner, when it lapses
and for how long it was granted. An office that would lapse later than it can have been granted for was granted before
the clock was set back; it is made to lapse a full term from now, so nobody leads beside one who still leads, and an
office whose owner is gone is not vacant for as long as the clock was wrong.
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
    """What a lock file says."""

    owner: str
    expires_at: datetime
    ttl: float


class Leaders:
    """The files in `leaders/`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._held: set[tuple[str, str]] = set()

    def elect(self, role: str, candidate: str, ttl: float, now: datetime) -> bool:
        """Take an office that is vacant or lapsed, or renew it for its owner."""
        self._held.discard((role, candidate))
        path = self._path(role)
        office = self._read(path, now)
        if office is not None and office.owner != candidate and office.expires_at > now:
            return False
        mine = LeaderRecord(candidate, now + timedelta(seconds=ttl), ttl)
        if office is None:
            disk.create(path, _text(mine))
        else:
            disk.replace(path, _text(mine))
        self._held.add((role, candidate))
        return True

    def leads(self, role: str, candidate: str) -> bool:
        """Tell whether a candidate of this process was elected last, without a look at the disk."""
        return (role, candidate) in self._held

    def resign(self, role: str, candidate: str, now: datetime) -> None:
        """Leave an office, if it is the candidate's."""
        self._held.discard((role, candidate))
        path = self._path(role)
        office = self._read(path, now)
        if office is not None and office.owner == candidate:
            path.unlink()

    def _path(self, role: str) -> Path:
        return self._layout.leaders / file_name(role, ".lock")

    def _read(self, path: Path, now: datetime) -> LeaderRecord | None:
        try:
            content = json.loads(path.read_bytes())
            office = LeaderRecord(
                content["owner"], datetime.fromisoformat(content["expires_at"]), float(content["ttl"])
            )
            latest = now + timedelta(seconds=office.ttl)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OverflowError, IsADirectoryError):
            self._layout.move_aside(path, "this is no leader's lock")
            return None
        if office.expires_at > latest:
            office = office._replace(expires_at=latest)
            disk.replace(path, _text(office))
        return office


def _text(office: LeaderRecord) -> list[bytes]:
    content = {"owner": office.owner, "expires_at": office.expires_at.isoformat(), "ttl": office.ttl}
    return [json.dumps(content).encode()]
