"""`python -m pgjq.testing`: simulate the lease protocol, for a million seeds or for one.

Of three seeds, one is played plainly, one with lost replies (`pgjq.testing.simulation_losses`), and one with lost
replies and schedules (`pgjq.testing.simulation_schedules`).
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

from pgjq.testing.simulation import play
from pgjq.testing.simulation_losses import play_lossy
from pgjq.testing.simulation_schedules import play_scheduled

AT_A_TIME = 1000
KINDS = (play, play_lossy, play_scheduled)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pgjq.testing", description="Simulate the lease protocol.")
    parser.add_argument("--seed", type=int, help="play this one, and print what was answered")
    parser.add_argument("--histories", type=int, default=1_000_000, help="how many seeds to play (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--lost-replies", action="store_true", help="with --seed: play it with lost replies")
    parser.add_argument("--schedules", action="store_true", help="with --seed: play it with schedules as well")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many processes (%(default)s)")
    asked = parser.parse_args()
    if asked.seed is not None:
        kind = play_scheduled if asked.schedules else play_lossy if asked.lost_replies else play
        for line in kind(asked.seed):
            print(*line)  # noqa: T201
    else:
        simulate(range(asked.first, asked.first + asked.histories), asked.processes)


def play_some(seeds: range) -> int:
    """Play seeds, each in one of three kinds of history, until one fails; return their number."""
    for seed in seeds:
        KINDS[seed % len(KINDS)](seed)
    return len(seeds)


def simulate(seeds: range, processes: int | None) -> None:
    """Play seeds in several processes, until one fails."""
    batches = [seeds[n : n + AT_A_TIME] for n in range(0, len(seeds), AT_A_TIME)]
    played = 0
    with ProcessPoolExecutor(processes) as pool:
        for count in pool.map(play_some, batches):
            played += count
            print(f"\r{played:,} histories", end="", flush=True)  # noqa: T201
    print(": every invariant held")  # noqa: T201


if __name__ == "__main__":
    main()
