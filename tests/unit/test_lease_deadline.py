"""How long a worker trusts a lease, counted from before it asked for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgjq.storage.base import Claimed, Lease
from pgjq.testing.clock import START
from pgjq.worker.run import Run


def run(lease: float | None, beat: float | None) -> Run:
    """Make a run that was asked for at 100."""
    unused: Any = SimpleNamespace(targets={}, default=None)
    claimed = Claimed(Lease("q", "a", 1, 1), b"", 1, 3, START, lease, None)
    return Run(claimed, unused, worker="ann", sent=100.0, beat=beat, committed=unused)


def test_a_lease_that_is_renewed_is_not_trusted_until_its_last_moment() -> None:
    one = run(30, 10)
    assert 100 + 20 < (one.trusted_until or 0) < 100 + 30
    one.renewed(110)
    assert 110 + 20 < (one.trusted_until or 0) < 110 + 30


def test_the_next_heartbeat_is_counted_from_the_last_one() -> None:
    one = run(2700, 120)
    assert one.next_beat == 100 + 120
    one.renewed(200)
    assert one.next_beat == 200 + 120
    assert run(30, None).next_beat is None


def test_a_run_that_nobody_renews_has_the_whole_of_its_lease() -> None:
    assert run(30, None).trusted_until == 130
    assert run(600, None).trusted_until == 700


@pytest.mark.parametrize("beat", [None, 10])
def test_without_a_lease_there_is_nothing_to_distrust(beat: float | None) -> None:
    assert run(None, beat).trusted_until is None
