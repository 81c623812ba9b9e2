"""The short form of `make chaos`: some rounds of quick faults on each storage."""

from __future__ import annotations

import os
import random
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tests.chaos.faults import KINDS, STORAGES, plan
from tests.chaos.run import Run

if TYPE_CHECKING:
    from tests.chaos.servers import StorageName

FAULTS: dict[StorageName, int] = {"postgres": 8, "redis": 8, "file": 8}
SLOW = frozenset({"fail_over"})
QUICK = tuple(kind.name for kind in KINDS.values() if kind.hold[1] <= 4 and kind.name not in SLOW)


@pytest.mark.parametrize("storage", STORAGES)
def test_nothing_is_lost_doubled_stuck_or_deaf_whatever_happens(storage: StorageName) -> None:
    seed = int(os.environ.get("PGJQ_TEST_SEED") or random.SystemRandom().randrange(2**31))
    said: list[str] = []
    with closing(Run(storage, seed, QUICK, said.append)) as run:
        result = run.play(faults=FAULTS[storage])
    found = {name: stories for name, stories in result.violations.items() if stories}
    assert not found, f"PGJQ_TEST_SEED={seed}\n" + "\n".join(said)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_seed_plans_the_same_faults_every_time(storage: StorageName) -> None:
    assert list(islice(plan(7, storage), 50)) == list(islice(plan(7, storage), 50))
    assert list(islice(plan(7, storage), 50)) != list(islice(plan(8, storage), 50))


@pytest.mark.parametrize("storage", STORAGES)
def test_a_round_has_at_most_one_fault_of_the_server(storage: StorageName) -> None:
    for faults in islice(plan(7, storage), 200):
        assert 1 <= len(faults) <= 3
        assert sum(fault.kind.scope == "server" for fault in faults) <= 1
