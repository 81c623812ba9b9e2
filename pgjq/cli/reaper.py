"""`pgjq reaper`: reap stalled jobs, alone or as one of several with a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pgjq.cli.log_output import logger, with_log
from pgjq.cli.open_storage import kind_of, with_storage
from pgjq.cli.param_types import DURATION
from pgjq.cli.run_until_signal import check_storage, run
from pgjq.lease import LeasePolicy
from pgjq.reaper import Reaper
from pgjq.worker.leadership import LeaderElection

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage

ELECTION = ("lock_ttl", "renewal_interval", "acquire_retry_interval")


@click.command()
@click.option("--leader-election", "elected", is_flag=True, help="Reap only as the leader of several reapers.")
@click.option("--lock-ttl", type=DURATION, help="How long leadership outlives its leader; by default 30s.")
@click.option("--renewal-interval", type=DURATION, help="How often a leader proves that it leads; by default 10s.")
@click.option("--acquire-retry-interval", type=DURATION, help="How often others try to lead; by default 5s.")
@click.option("--stale-age", type=DURATION, help="How far past its deadline a job is taken; by default 0.")
@click.option("--reap-interval", type=DURATION, help="Sweep this often, whatever the deadlines say; by default 5s.")
@with_storage
@with_log
def reaper(
    begin_log: Callable[[], None],
    storage: Storage,
    *,
    elected: bool,
    stale_age: float | None,
    reap_interval: float | None,
    **election: float | None,
) -> None:
    """Take stalled jobs of every queue back, until SIGTERM or Ctrl-C.

    Every worker has a reaper of its own; this one is for where workers may be few, busy or gone. Any number may run:
    each job is taken by one. With --leader-election only one of them acts, and another one follows when it ends.

    \b
    Examples:
      pgjq reaper
      pgjq reaper --leader-election
      pgjq reaper --leader-election --lock-ttl 15s --renewal-interval 5s --json
    """  # noqa: D301
    begin_log()
    policy = LeasePolicy(**_given(stale_age=stale_age, reap_interval=reap_interval))
    made = Reaper(storage=storage, lease_policy=policy, leader_election=_election(elected, election))
    check_storage(storage)
    made.on("leadership_acquired", lambda: logger.info("leadership acquired"))
    made.on("leadership_lost", lambda: logger.info("leadership lost"))
    how = "as a candidate for leader" if elected else "without an election"
    run(made, f"{made.reaper_id} takes stalled jobs back on {kind_of(storage)}, {how}", "stopping")


def _election(elected: bool, options: dict[str, float | None]) -> LeaderElection:  # noqa: FBT001
    given = _given(**options)
    if given and not elected:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{flags}: only with --leader-election")
    return LeaderElection(enabled=elected, **given)


def _given(**options: float | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
