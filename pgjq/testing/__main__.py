"""`python -m pgjq.testing`: simulate the lease protocol, for a million seeds or for one.

Every second seed is played with lost replies (`pgjq.testing.simulation_losses`).
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

from pgjq.testing.simulation import play
from pgjq.testing.simulation_losses import play_lossy

AT_A_TIME = 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pgjq.testing", description="Simulate the lease protocol.")
    parser.add_argument("--seed", type=int, help="play this one, and print what was answered")
    parser.add_argument("--histories", type=int, default=1_000_000, help="how many seeds to play (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--lost-replies", action="store_true", help="with --seed: play it with lost replies")
    asked = parser.parse_args()
    if asked.seed is not None:
        for line in play_lossy(asked.seed) if asked.lost_replies else play(asked.seed):
            print(*line)  # noqa: T201
    else:
        simulate(range(asked.first, asked.first + asked.histories))


def play_some(seeds: range) -> int:
    """Play seeds, every second one with lost replies, until one fails; return their number."""
    for seed in seeds:
        (play_lossy if seed % 2 else play)(seed)
    return len(seeds)


def simulate(seeds: range) -> None:
    """Play seeds on every processor, until one fails."""
    batches = [seeds[n : n + AT_A_TIME] for n in range(0, len(seeds), AT_A_TIME)]
    played = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for count in pool.map(play_some, batches):
            played += count
            print(f"\r{played:,} histories", end="", flush=True)  # noqa: T201
    print(": every invariant held")  # noqa: T201


if __name__ == "__main__":
    main()
