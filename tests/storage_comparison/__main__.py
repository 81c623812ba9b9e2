"""The command: play random scenarios on every storage, many or one again."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tests.storage_comparison.driver import differences
from tests.storage_comparison.generate import scenario
from tests.storage_comparison.servers import NAMES, started_subjects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.storage_comparison.subject import Subject


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.storage_comparison",
        description="Play random scenarios on every storage and compare the answers.",
    )
    parser.add_argument("--seed", type=int, help="Play this seed only.")
    parser.add_argument("--scenarios", type=int, default=1000, help="Number of seeds to play (default: %(default)s).")
    parser.add_argument("--first", type=int, default=0, help="First seed (default: %(default)s).")
    parser.add_argument("--all", action="store_true", help="Go on after a difference.")
    parser.add_argument("--storages", nargs="+", default=NAMES, choices=NAMES, help="Compare only these with memory.")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.scenarios) if asked.seed is None else [asked.seed]
    with started_subjects(asked.storages) as subjects:
        sys.exit(play_all(seeds, subjects, go_on=asked.all) > 0)


def play_all(seeds: Sequence[int], subjects: Sequence[Subject], *, go_on: bool) -> int:
    """Play seeds, and print the shrunk scenario of each that has different answers; return how many have."""
    found, began = 0, time.monotonic()
    for number, seed in enumerate(seeds, 1):
        if (text := differences(scenario(seed), subjects, seed)) is not None:
            found += 1
            print(f"\n{text}\n", flush=True)  # noqa: T201
            if not go_on:
                break
        if number % 100 == 0 or number == len(seeds):
            spent = time.monotonic() - began
            print(f"{number:,} scenarios in {spent:.0f} s, {found} with different answers", flush=True)  # noqa: T201
    return found


if __name__ == "__main__":
    main()
