"""Each option is declared once; what must be written by hand elsewhere is compared with the declaration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from pgjq import NewJob, QueueInfo, ValidationError
from pgjq.cli import main
from pgjq.cli.option_tables import from_declared
from pgjq.declared_options import (
    ENQUEUE_OPTIONS,
    QUEUE_CHANGES,
    QUEUE_OPTIONS,
    SHARED_OPTIONS,
    EnqueueOptions,
    Option,
    QueueOptions,
)
from pgjq.definition import DEFAULTS, check_changes
from pgjq.job_settings import settings
from pgjq.option_kinds import Boolean, Choice, Duration, Integer, Key, PointInTime, QueueName, TextMap
from pgjq.options import DEFAULT_SETTINGS, JobOptions, Settings, check_headers
from pgjq.storage.file import journal_format
from pgjq.storage.postgres import enqueue as postgres
from pgjq.storage.redis import enqueue as redis

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from pgjq.option_kinds import Kind

ROOT = Path(__file__).parents[2]
SQL = "\n".join(path.read_text() for path in sorted((ROOT / "sql" / "functions").glob("*.sql")))
PAGE = (ROOT / "docs" / "queues.md").read_text()

# A value of each kind that is no option's default.
SAMPLES: dict[type, Any] = {
    Integer: 7,
    Duration: 70.0,
    PointInTime: datetime(2030, 1, 1, tzinfo=UTC),
    Boolean: True,
    Key: "key",
    QueueName: "letters",
    TextMap: {"traceparent": "00-1"},
}
BEYOND: dict[type, tuple[Any, ...]] = {
    Integer: ("7", 7.0, True, 2**40, -(2**40)),
    Duration: ("7", True, -1, float("nan"), float("inf")),
    PointInTime: ("2030-01-01", 7, datetime(2030, 1, 1)),  # noqa: DTZ001
    Boolean: (1, "yes"),
    Choice: ("fifo", 7),
    Key: ("", 7, "k" * 513),
    QueueName: ("", 7, "q" * 129),
    TextMap: (7, {"a": 1}, {"": "a"}),
}
# These stand for others: max_attempts is retry_limit + 1, and debounce is singleton_seconds with singleton_next_slot.
RESOLVED = {"retry_limit", "debounce"}
# Stored with the job, beside its settings, as they are rarely the same for two jobs.
BESIDE = {"headers"}
# What only an enqueue needs: a journal entry has the time and the slot that they led to.
SPENT = {"run_at", "delay", "on_failed", "singleton_seconds", "singleton_next_slot", "debounce"}
# Time slots need definitions, which Redis does not have: the client refuses these options there.
NOT_IN_REDIS = {"singleton_seconds", "singleton_next_slot", "debounce"}


@dataclass(frozen=True)
class Place:
    """A place that lists options by hand, and how to find out whether it has one."""

    name: str
    options: frozenset[str]
    has: Callable[[str, Option], bool]


def sample(kind: Kind) -> Any:
    return kind.words[-1] if isinstance(kind, Choice) else SAMPLES[type(kind)]


def changed(name: str, option: Option) -> Settings:
    """Return settings with one option set; for an option that NewJob lacks, with a field that only they have."""
    value = sample(option.kind)
    if name not in names_of(NewJob):
        return make_dataclass("Settings", [(name, Any, value)], bases=(Settings,), frozen=True)()
    needed = {"singleton_seconds": 60} if name == "singleton_next_slot" else {}
    return settings(NewJob(None, 1, **{name: value} | needed))


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def is_written(write: Callable[[Settings], Any]) -> Callable[[str, Option], bool]:
    return lambda name, option: write(changed(name, option)) != write(DEFAULT_SETTINGS)


def spark_columns() -> set[str]:
    from pgjq.spark.columns import schema_of

    return set(schema_of("queues").fieldNames())


def places(jobs: Mapping[str, Option], queues: Mapping[str, Option]) -> list[Place]:
    """List the places, each with the options that belong there."""
    job, kept = frozenset(jobs), frozenset(jobs) - RESOLVED - BESIDE
    resolved = names_of(Settings) | names_of(JobOptions)
    return [
        Place("NewJob", job, lambda name, _: name in names_of(NewJob)),
        Place("Settings or JobOptions", kept, lambda name, _: name in resolved),
        Place("QueueInfo", frozenset(queues), lambda name, _: name in names_of(QueueInfo)),
        Place("the Spark columns of queues", frozenset(queues), lambda name, _: name in spark_columns()),
        Place("PostgreSQL's settings", kept, is_written(postgres.set_values)),
        Place("sql/functions", kept, lambda name, _: re.search(rf"""['"]{name}['"]""", SQL) is not None),
        Place("Redis's settings", kept - NOT_IN_REDIS, is_written(redis._written)),
        Place("the journal's settings", kept - SPENT, is_written(journal_format._encode_settings)),
        Place("docs/queues.md", job | frozenset(queues), lambda name, option: row(name, option) in PAGE),
    ]


def missing(jobs: Mapping[str, Option], queues: Mapping[str, Option]) -> set[str]:
    """Say which place lacks which option."""
    every = {**jobs, **queues}
    found = {(place.name, name) for place in places(jobs, queues) for name in place.options}
    has = {place.name: place.has for place in places(jobs, queues)}
    lacking = {(place, name) for place, name in found if not has[place](name, every[name])}
    return {
        f"{place} lacks {row(name, every[name])}" if place == "docs/queues.md" else f"{place} lacks {name}"
        for place, name in lacking
    }


def row(name: str, option: Option) -> str:
    """Return an option's row in the tables of docs/queues.md."""
    bounds = option.kind.bounds()
    added = "" if isinstance(option.kind, Boolean) else f" {bounds[:1].upper()}{bounds[1:]}."
    return f"| `{name}` | {shown(option)} | {option.help}{added} |"


def shown(option: Option) -> str:
    """Return an option's default as the page has it."""
    if option.default is None:
        return "none"
    if not isinstance(option.kind, Duration):
        return f'`"{option.default}"`' if isinstance(option.default, str) else f"`{option.default}`"
    return f"{option.default / 86400:g} days" if option.default >= 86400 else f"{option.default:g}"


def test_every_place_has_every_option() -> None:
    assert missing(ENQUEUE_OPTIONS, QUEUE_OPTIONS) == set()


def test_an_option_that_is_only_declared_is_missed_everywhere() -> None:
    added = {"colour": Option(Integer(1), "Colour of the job.")}
    lacking = missing(ENQUEUE_OPTIONS | added, QUEUE_OPTIONS | added)
    assert lacking == {f"{place.name} lacks colour" for place in places({}, {}) if place.name != "docs/queues.md"} | {
        "docs/queues.md lacks | `colour` | none | Colour of the job. 1 to 32767. |"
    }


def test_no_place_has_an_option_that_is_not_declared() -> None:
    assert names_of(NewJob) == {"id", "payload", *ENQUEUE_OPTIONS}
    known = {"options", "backoff_by_default", *ENQUEUE_OPTIONS} - RESOLVED - BESIDE
    assert names_of(Settings) | names_of(JobOptions) == known
    assert names_of(QueueInfo) == {"name", "paused", "created_at", "stats", *QUEUE_OPTIONS}
    assert set(re.findall(r"^\| `(\w+)` \| .* \| [A-Z]", PAGE, re.MULTILINE)) == {*ENQUEUE_OPTIONS, *QUEUE_OPTIONS}


@pytest.mark.parametrize("name", ENQUEUE_OPTIONS)
def test_a_new_job_has_the_declared_type_and_default(name: str) -> None:
    declared = get_type_hints(EnqueueOptions)[name]
    (field,) = (field for field in fields(NewJob) if field.name == name)
    names = {"datetime": datetime, "timedelta": timedelta, "Mapping": Mapping}
    assert get_type_hints(NewJob, localns=names)[name] == declared
    assert field.default == (None if type(None) in get_args(declared) else ENQUEUE_OPTIONS[name].default)


def test_options_that_are_shared_are_the_same_for_jobs_and_queues() -> None:
    jobs, queues = (get_type_hints(kind, include_extras=True) for kind in (EnqueueOptions, QueueOptions))
    assert {name: jobs[name] for name in jobs.keys() & queues.keys()} == {name: queues[name] for name in SHARED_OPTIONS}
    assert all(get_origin(kind) is Annotated for kind in (*jobs.values(), *queues.values()))
    assert list(DEFAULTS) == list(SHARED_OPTIONS)


@pytest.mark.parametrize("name", [*ENQUEUE_OPTIONS, *QUEUE_CHANGES])
def test_values_of_another_kind_are_refused_with_the_options_name(name: str) -> None:
    option = (ENQUEUE_OPTIONS | QUEUE_CHANGES)[name]
    for value in BEYOND[type(option.kind)]:
        if name in BESIDE:
            with pytest.raises(ValidationError, match="header"):
                check_headers(value)
        elif name in ENQUEUE_OPTIONS:
            with pytest.raises(ValidationError, match=rf"{name}|a queue's name"):
                settings(NewJob(None, 1, **{name: value}))
        if name in QUEUE_CHANGES:
            with pytest.raises(ValidationError, match=rf"{name}|a queue's name"):
                check_changes("q", {name: value})


def test_the_default_of_an_option_is_a_value_of_its_kind() -> None:
    for name, option in (ENQUEUE_OPTIONS | QUEUE_OPTIONS).items():
        if option.default is not None:
            assert option.kind.check(name, option.default) == option.default


@pytest.mark.parametrize(
    ("command", "declared"),
    [
        (("enqueue",), ENQUEUE_OPTIONS),
        (("queues", "create"), QUEUE_OPTIONS),
        (("queues", "update"), QUEUE_CHANGES),
    ],
)
def test_the_command_line_has_every_option_with_its_help_text(
    command: tuple[str, ...], declared: Mapping[str, Option]
) -> None:
    found: Any = main
    for word in command:
        found = found.commands[word]
    offered: dict[str | None, click.Parameter] = {parameter.name: parameter for parameter in found.params}
    assert {name: getattr(offered[name], "help", None) for name in declared} == {
        name: option.help for name, option in declared.items()
    }


def test_a_declared_option_becomes_one_of_the_command_line() -> None:
    (setting,) = from_declared({"colour_depth": Option(Integer(1), "Colour of the job.")})
    assert (setting.flag, setting.kind, setting.help) == ("--colour-depth", int, "Colour of the job.")
