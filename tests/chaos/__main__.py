"""The command: break everything that can break, in a seeded order, and check what pgjq guarantees."""

from __future__ import annotations

import random
import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from tests import pgbouncer
from tests.chaos.faults import KINDS, STORAGES
from tests.chaos.run import COUNTED, Result, Run

if TYPE_CHECKING:
    from tests.chaos.servers import StorageName

# PostgreSQL has the most kinds of faults, and the strongest promise.
SHARES: dict[StorageName, float] = {"postgres": 0.7, "redis": 0.2, "file": 0.1}


@click.command()
@click.option("--seconds", type=float, default=600.0, show_default=True, help="Length of the run, without --faults.")
@click.option("--faults", type=int, help="Number of faults, whatever time they take.")
@click.option("--seed", type=int, help="Random seed (default: a new one).")
@click.option("--storage", "storages", multiple=True, type=click.Choice(STORAGES), help="Storage; may be repeated.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(sorted(KINDS)), help="Fault kind; may be repeated.")
@click.option("--list", "is_list", is_flag=True, help="List the kinds of faults and exit.")
def main(
    *,
    seconds: float,
    faults: int | None,
    seed: int | None,
    storages: tuple[StorageName, ...],
    kinds: tuple[str, ...],
    is_list: bool,
) -> None:
    """Inject faults into a fleet of real processes, and check that nothing is lost, doubled, stuck or deaf."""
    if is_list:
        list_kinds()
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Servers are stopped then as well.
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    chosen = [storage for storage in STORAGES if storage in (storages or STORAGES)]
    share = sum(SHARES[storage] for storage in chosen)
    result = Result()
    for storage in chosen:
        part = SHARES[storage] / share
        amount = {"seconds": seconds * part} if faults is None else {"faults": round(faults * part)}
        result.add(play(storage, seed, kinds, **amount))
    click.echo(report(result, seed))
    sys.exit(any(result.violations.values()))


def play(storage: StorageName, seed: int, kinds: tuple[str, ...], **amount: float) -> Result:
    """Play one storage's part."""
    click.echo(f"== {storage}, seed {seed}")
    if storage == "postgres" and not pgbouncer.is_installed():
        click.echo("NOT TESTED: PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    with closing(Run(storage, seed, kinds, click.echo)) as run:
        return run.play(**amount)  # type: ignore[arg-type]


def report(result: Result, seed: int) -> str:
    """Say in one line what was counted; what has no name there follows the counts."""
    counts = ", ".join(f"{name} {result.count(name)}" for name in COUNTED)
    others = f", other violations {result.others}" if result.others else ""
    return f"chaos: {result.faults} faults, {counts}{others} (seed {seed}, {result.seconds:.0f} s)"


def list_kinds() -> None:
    """Print each kind with the storages that it applies to."""
    for kind in KINDS.values():
        click.echo(f"{kind.name:32} {','.join(kind.storages):20} {kind.text}")


if __name__ == "__main__":
    main()
