"""Arguments are checked where a task is enqueued, and converted to the annotated types where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from pgjq import Client, MemoryStorage, MsgpackSerde, Queue, ValidationError

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    at: date = date(2026, 1, 1)


class Address(TypedDict):
    street: str
    since: datetime
    floor: NotRequired[int]


@dataclass
class Line:
    sku: UUID
    tags: set[str] = field(default_factory=set)
    parts: list[Point] = field(default_factory=list)


@attrs.define
class Parcel:
    weight: Decimal
    _secret: Path = Path("x")


class Model(pydantic.BaseModel):
    when: datetime
    lines: dict[str, int] = {}


class Struct(msgspec.Struct):
    name: str
    at: datetime


AT = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
KEY = UUID("12345678123456781234567812345678")
# An annotation, and a value of it that must come out as it went in.
VALUES: list[tuple[Any, Any]] = [
    (int, 7),
    (float, 7.5),
    (bool, True),
    (str, "ä\n"),
    (None, None),
    (bytes, b"\xff\0"),
    (datetime, AT),
    (date, date(2026, 2, 28)),
    (timedelta, timedelta(seconds=1.5)),
    (UUID, KEY),
    (Decimal, Decimal("1.10")),
    (Path, Path("/srv/x")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Literal["a", 1], 1),
    (int | None, None),
    (list[UUID], [KEY]),
    (tuple[int, str], (1, "a")),
    (tuple, (1, "a")),
    (set[date], {date(2026, 1, 1)}),
    (frozenset, frozenset({1, 2})),
    (dict[int, Decimal], {1: Decimal("0.5")}),
    (dict[Colour, list[Point]], {Colour.RED: [Point(1)]}),
    (Sequence[Point], [Point(1), Point(2, date(2026, 3, 1))]),
    (Address, {"street": "s", "since": AT, "floor": 2}),
    (Line, Line(KEY, {"a", "b"}, [Point(3)])),
    (Parcel, Parcel(Decimal(2), Path("y"))),
    (Model, Model(when=AT, lines={"a": 1})),
    (Struct, Struct("n", AT)),
    (Any, {"a": [1, None]}),
]


@pytest.mark.parametrize("serde", ["json", "msgpack"])
def test_values_of_every_type_come_back_as_they_were(serde: str) -> None:
    storage = MemoryStorage()
    serdes: dict[str, Any] = {}
    if serde == "msgpack":
        serdes = {"payload_serde": MsgpackSerde(), "result_serde": MsgpackSerde()}
    queue = Queue("q", storage=storage, concurrency=4, **serdes)
    seen: dict[str, Any] = {}

    def make(name: str, kind: Any) -> Any:
        def task(value: Any, *rest: Any, named: Any) -> Any:
            seen[name] = value, rest, named
            return value

        task.__annotations__ = {"value": kind, "rest": kind, "named": kind, "return": kind}
        return queue.task(name=name)(task)

    tasks = [make(f"t{n}", kind) for n, (kind, _) in enumerate(VALUES)]
    with queue:
        for task, (_, value) in zip(tasks, VALUES, strict=True):
            assert task.enqueue(value, value, named=value).result() == value, task
            assert seen[task.name] == (value, (value,), value)
            assert type(seen[task.name][0]) is type(value)


WRONG: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = []


def wrong(*args: Any, names: str, **kwargs: Any) -> Callable[[Any], Any]:
    """Register a call that must be refused, and the parameter that the error must name."""

    def register(function: Any) -> Any:
        WRONG.append((function, args, kwargs, names))
        return function

    return register


@wrong("7", names="order")
@wrong(True, names="order")
@wrong(names="order")
@wrong(1, 2, names="too many positional")
@wrong(1, copies=1, names="copies")
@wrong(1, copy="yes", names="copy")
@wrong(order=None, names="order")
def receipt(order: int, *, copy: bool = False) -> None: ...


@wrong({"street": 1, "since": AT}, names="street")
@wrong({"street": "s"}, names="since")
def address(address: Address) -> None: ...


@wrong({"sku": "x"}, names="line.sku")
@wrong(Point(1), names="line")
def lines(line: Line) -> None: ...


@wrong(points=[["1"]], names=r"points\[0\].x")
def points(*, points: list[Point]) -> None: ...


@wrong(object(), names="anything")
@wrong({1, 2}, names="anything")
@wrong(float("nan"), names="anything")
@wrong("\ud800", names="anything")
def untyped(anything) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


@wrong(float("inf"), names="number")
@wrong([float("inf")], names="number")
def number(number: float | list[float]) -> None: ...


@pytest.mark.parametrize(("function", "args", "kwargs", "names"), WRONG)
def test_wrong_arguments_never_reach_a_queue(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], names: str
) -> None:
    storage = MemoryStorage()
    queue = Queue("q", storage=storage)
    task = queue.task(function)
    with pytest.raises(ValidationError, match=names):
        task.enqueue(*args, **kwargs)
    with pytest.raises(ValidationError, match=names):
        task.using(priority=1).enqueue(*args, **kwargs)
    with pytest.raises(ValidationError, match=names):
        queue.enqueue_many([("fine", 1), task.call(*args, **kwargs)])
    assert Client(storage).find_jobs() == []


def test_arguments_that_do_not_fit_in_the_worker_fail_the_job_for_good(harness: Harness) -> None:
    async def case() -> None:
        mail = harness.queue()
        ran: list[Any] = []

        @mail.task
        def receipt(order: int) -> None:
            ran.append(order)

        bad = {
            "type": {"task": "receipt", "args": ["x"]},
            "many": {"task": "receipt", "args": [1, 2]},
            "none": {"task": "receipt"},
            "args": {"task": "receipt", "args": {}},
            "kwargs": {"task": "receipt", "kwargs": {"orders": 1}},
            "version": {"task": "receipt", "args": [1], "version": "two"},
        }
        await harness.call(mail.enqueue_many, list(bad.items()))
        async with harness.started(mail):
            for job_id in bad:
                status = await harness.until_state(mail, job_id, "failed")
                assert (status.attempts, status.error.type) == (1, "pgjq.errors.ValidationError")
        assert ran == []

    harness.run(case())


def test_annotations_may_name_what_is_defined_later_or_locally() -> None:
    queue = Queue("q", storage=MemoryStorage())

    @dataclass
    class Local:
        number: int

    @queue.task
    def local(value: Local) -> Local:
        return value

    @queue.task
    def missing(value: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
        del value

    assert local.call(Local(1)).payload["args"] == [{"number": 1}]
    with pytest.raises(ValidationError, match=r"the annotations of task 'missing' cannot be read: .*Missing"):
        missing.enqueue(1)
