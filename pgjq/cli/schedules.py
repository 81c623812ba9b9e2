"""Commands on schedules: `pgjq schedules list`, `show`, `create`, `explain` and more."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from pgjq.cli.completion import QUEUE_NAME, SCHEDULE_NAME
from pgjq.cli.confirm import confirm
from pgjq.cli.formatting import duration, shown
from pgjq.cli.open_storage import with_client
from pgjq.cli.option_tables import JOB, Setting, with_settings
from pgjq.cli.param_types import DURATION, JSON, MOMENT, Parsed
from pgjq.schedules.schedule import NOT_OF_SCHEDULES, Missed, Overlap

if TYPE_CHECKING:
    from pgjq.cli.output import Columns, Output
    from pgjq.client import Client
    from pgjq.schedules.schedule import ScheduleInfo, ScheduleTick


def _times(schedule: ScheduleInfo) -> str:
    return schedule.cron if schedule.cron is not None else f"every {duration(schedule.every or 0)}"


SCHEDULE: Final = (
    Setting("cron", str, "When it runs: five fields, six with seconds first, or @daily and its kin."),
    Setting("every", DURATION, "How often it runs, instead of --cron."),
    Setting("timezone", str, "The time zone of --cron, as Europe/Berlin; UTC unless set."),
    Setting("start_at", MOMENT, "Not before then; --every counts from there."),
    Setting("end_at", MOMENT, "Not after then."),
    Setting("missed", click.Choice(get_args(Missed)), "Ticks that no worker made in time: none, one job, or all."),
    Setting("overlap", click.Choice(get_args(Overlap)), "Whether a job is made while an earlier one is live."),
    Setting("jitter", DURATION, "Spread the jobs over so long after the tick."),
    Setting("starting_deadline", DURATION, "Lateness from which missed=skip makes no job (default: 60s)."),
    *(setting for setting in JOB if setting.name not in NOT_OF_SCHEDULES),
)
LIST: Final[Columns] = {
    "name": lambda schedule: schedule.name,
    "queue": lambda schedule: schedule.queue,
    "runs": _times,
    "timezone": lambda schedule: schedule.timezone,
    "paused": lambda schedule: schedule.paused,
    "next_run_at": lambda schedule: schedule.next_run_at,
    "last_run_at": lambda schedule: schedule.last_run_at,
    "error": lambda schedule: schedule.error,
}
UNSET: Final = tuple(setting.name for setting in SCHEDULE if setting.name not in ("timezone", "missed", "overlap"))


@click.group()
def schedules() -> None:
    """List, create, pause, trigger and explain schedules.

    A schedule makes a job at each of its times, as long as any worker runs.

    \b
    Examples:
      pgjq schedules create nightly imports --cron '0 3 * * *' --timezone Europe/Berlin
      pgjq schedules list
      pgjq schedules explain nightly
    """  # noqa: D301


@schedules.command("list")
@with_client
def list_schedules(client: Client, output: Output) -> None:
    """List all schedules, with their next and last runs.

    \b
    Examples:
      pgjq schedules list
      pgjq schedules list --json
    """  # noqa: D301
    output.rows(client.get_schedules(), LIST)


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@with_client
def show(client: Client, output: Output, *, name: str) -> None:
    """Show a schedule.

    \b
    Examples:
      pgjq schedules show nightly
    """  # noqa: D301
    output.record(client.get_schedule(name))


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@click.argument("queue", type=QUEUE_NAME)
@click.argument("payload", type=JSON, default="null")
@with_settings(SCHEDULE)
@with_client
def create(client: Client, output: Output, *, name: str, queue: str, payload: Any, settings: dict[str, Any]) -> None:
    """Create a schedule that makes jobs of a queue, with a JSON payload.

    \b
    Examples:
      pgjq schedules create nightly imports --cron '0 3 * * *' --timezone Europe/Berlin
      pgjq schedules create poll feeds '{"feed": 7}' --every 5m --overlap skip --missed skip
    """  # noqa: D301
    output.record(client.create_schedule(name, queue, _value(payload), **settings))


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@click.option("--queue", type=QUEUE_NAME, help="The queue of its jobs.")
@click.option("--payload", type=JSON, help="The JSON payload of its jobs.")
@click.option(
    "--unset",
    multiple=True,
    type=click.Choice(UNSET),
    help="Reset a setting to its default; may be given several times.",
)
@with_settings(SCHEDULE)
@with_client
def update(
    client: Client,
    output: Output,
    *,
    name: str,
    queue: str | None,
    payload: Any,
    unset: tuple[str, ...],
    settings: dict[str, Any],
) -> None:
    """Change a schedule. A changed time counts from now; missed runs of the old one are dropped.

    \b
    Examples:
      pgjq schedules update nightly --cron '30 4 * * *'
      pgjq schedules update nightly --payload '{"full": true}' --unset priority
    """  # noqa: D301
    if both := sorted(set(unset) & set(settings)):
        raise click.UsageError(f"set it or take it back, not both: {', '.join(both)}")
    changes = settings | dict.fromkeys(unset)
    changes |= {} if queue is None else {"queue": queue}
    changes |= {} if payload is None else {"payload": _value(payload)}
    if not changes:
        raise click.UsageError("say what to change")
    output.record(client.update_schedule(name, **changes))


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@with_client
def pause(client: Client, output: Output, *, name: str) -> None:
    """Make no jobs of a schedule until it is resumed; its ticks in between are dropped.

    \b
    Examples:
      pgjq schedules pause nightly
    """  # noqa: D301
    client.pause_schedule(name)
    output.say(f"schedule {name} is paused", schedule=name, paused=True)


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@with_client
def resume(client: Client, output: Output, *, name: str) -> None:
    """Make jobs of a schedule again, from its next tick on.

    \b
    Examples:
      pgjq schedules resume nightly
    """  # noqa: D301
    resumed = client.resume_schedule(name)
    output.say(f"schedule {name} runs again{_next(resumed)}", schedule=name, paused=False)


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@click.option("--yes", is_flag=True, help="Do not ask first.")
@with_client
def delete(client: Client, output: Output, *, name: str, yes: bool) -> None:
    """Delete a schedule. Its jobs stay.

    \b
    Examples:
      pgjq schedules delete nightly --yes
    """  # noqa: D301
    client.get_schedule(name)
    confirm(f"Delete schedule {name}?", yes=yes)
    client.delete_schedule(name)
    output.say(f"deleted schedule {name}", schedule=name, deleted=True)


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@with_client
def trigger(client: Client, output: Output, *, name: str) -> None:
    """Make a job of a schedule now, also if it is paused; its next run stays as it is.

    \b
    Examples:
      pgjq schedules trigger nightly
    """  # noqa: D301
    job_id = client.trigger_schedule(name)
    output.say(f"schedule {name} made the job {job_id}", schedule=name, job_id=job_id)


@schedules.command()
@click.argument("name", type=SCHEDULE_NAME)
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Number of next runs.")
@with_client
def explain(client: Client, output: Output, *, name: str, count: int) -> None:
    """Print the next runs of a schedule, and why its last ticks made a job or did not.

    \b
    Examples:
      pgjq schedules explain nightly
      pgjq schedules explain nightly --count 20 --json
    """  # noqa: D301
    schedule, ticks = client.get_schedule(name), client.get_schedule_ticks(name)
    runs = [] if schedule.error else client.preview_schedule(name, count)
    lines = [f"{name} makes jobs of queue {schedule.queue}: {_times(schedule)}, {schedule.timezone}"]
    lines += [f"it cannot run: {schedule.error}"] if schedule.error else []
    lines += ["it is paused: its ticks make no jobs"] if schedule.paused else []
    lines += [f"next run  {shown('at', run)}" for run in runs] or ["no next run"]
    lines += [_describe_tick(tick) for tick in ticks[:count]] or ["no tick yet"]
    for line in () if output.as_json else lines:
        output.say(line)
    if output.as_json:
        output.say("", schedule=asdict(schedule), next_runs=runs, ticks=[tick._asdict() for tick in ticks])


def _describe_tick(tick: ScheduleTick) -> str:
    made = f"made {tick.job_id}" if tick.job_id else "made no job"
    return f"last tick {shown('at', tick.tick)}  {tick.outcome}: {made}" + (f" ({tick.detail})" if tick.detail else "")


def _next(schedule: ScheduleInfo) -> str:
    return "" if schedule.next_run_at is None else f", next at {shown('at', schedule.next_run_at)}"


def _value(payload: Any) -> Any:
    if not isinstance(payload, Parsed):
        raise click.UsageError("the payload is JSON; a schedule does not read it from standard input")
    return payload.value
