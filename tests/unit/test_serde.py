"""Payloads and results as bytes."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq import (
    Client,
    Job,
    JsonSerde,
    MemoryStorage,
    MissingExtraError,
    MsgpackSerde,
    Queue,
    ValidationError,
    content_id,
)
from pgjq.serde import serialize_payload

in_any_time = running(deadline=None)

letters = st.characters(exclude_categories=["Cs"])
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)


def nested(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | scalars | st.text(letters),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(letters), inner),
    )


values = nested(numbers)


Cents = NewType("Cents", int)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Note(TypedDict):
    text: str


@dataclass
class Line:
    sku: str
    price: Decimal
    count: int = 1


@dataclass
class Order:
    """Every kind of field there is."""

    id: UUID
    at: datetime
    day: date
    noon: time
    patience: timedelta
    raw: bytes
    colour: Colour
    lines: list[Line]
    by_name: dict[str, Line]
    pair: tuple[int, str]
    many: tuple[float, ...]
    tags: set[str]
    frozen: frozenset[int]
    size: Literal["s", "m", 3]
    cents: Cents
    noted: Annotated[int, "a note"]
    note: Note
    either: int | str | Line | None
    whatever: Any
    parent: Order | None = None
    made: int = field(default=7, init=False)


ORDER = Order(
    UUID(int=7),
    datetime(2026, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=1))),
    date(2026, 1, 31),
    time(12, 0),
    timedelta(seconds=1.5),
    b"\x00\xff",
    Colour.BLUE,
    [Line("a", Decimal("1.50")), Line("b", Decimal(2), 3)],
    {"a": Line("a", Decimal(1))},
    (1, "one"),
    (1.0, 2.5),
    {"x"},
    frozenset({1}),
    3,
    Cents(5),
    6,
    {"text": "hello"},
    Line("c", Decimal(0)),
    [1, None, {"a": 1}],
)


class Model(pydantic.BaseModel):
    id: UUID
    at: datetime
    lines: list[Line]


class Struct(msgspec.Struct):
    id: UUID
    at: datetime
    raw: bytes
    price: Decimal


MODEL = Model(id=UUID(int=7), at=datetime(2026, 1, 1, tzinfo=UTC), lines=[Line("a", Decimal("1.5"))])
STRUCT = Struct(UUID(int=7), datetime(2026, 1, 1, tzinfo=UTC), b"\x00\xff", Decimal("1.50"))

both = pytest.mark.parametrize("serde", [JsonSerde, MsgpackSerde])


class Repr:
    """A serde that takes everything and answers with what it was made to answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def serialize(self, value: Any) -> Any:  # noqa: ARG002  (a serde's signature)
        return self._answer

    def deserialize(self, data: bytes) -> Any:
        return ("read", data)


@in_any_time
@given(values)
def test_what_json_can_say_comes_back_as_it_was(value: Any) -> None:
    assert JsonSerde().deserialize(JsonSerde().serialize(value)) == value


@in_any_time
@given(values)
def test_any_json_reader_can_read_it(value: Any) -> None:
    assert json.loads(JsonSerde().serialize(value).decode("utf-8"), parse_constant=pytest.fail) == value


def test_it_is_compact_utf8() -> None:
    assert JsonSerde().serialize({"to": ["änn", 1, None]}) == '{"to":["änn",1,null]}'.encode()


circular: list[Any] = []
circular.append(circular)


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), Order, math.nan, math.inf, [-math.inf], "\ud800", {(1, 2): 3}, circular]
)
def test_what_json_cannot_say_is_a_validation_error_that_names_the_job_and_the_serde(value: Any) -> None:
    with pytest.raises(ValidationError, match="payload of job 'one' cannot be serialised by JsonSerde") as caught:
        serialize_payload(JsonSerde(), value, "one")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("answer", ["text", None, bytearray(b"x"), 5])
def test_a_serde_that_does_not_return_bytes_is_a_validation_error(answer: Any) -> None:
    with pytest.raises(ValidationError, match=r"Repr\.serialize returned .*, not bytes"):
        serialize_payload(Repr(answer), 1, "one")


def test_whatever_a_serde_raises_is_a_validation_error() -> None:
    class Broken(Repr):
        def serialize(self, value: Any) -> Any:
            raise KeyError(value)

    with pytest.raises(ValidationError, match="cannot be serialised by Broken") as caught:
        Client(MemoryStorage(), payload_serde=Broken(None)).enqueue("mail", "one", "what")
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_serde_of_ones_own_needs_nothing_but_two_methods() -> None:
    storage = MemoryStorage()
    Client(storage, payload_serde=Repr(b"\x00\xff")).enqueue("mail", "one", object())
    (record,) = storage.jobs.records.values()
    assert record.payload == b"\x00\xff"


RICHER = {
    "at": datetime(2026, 1, 31, 9, 30, tzinfo=UTC),
    "naive": datetime(2026, 1, 31, 9, 30),  # noqa: DTZ001
    "day": date(2026, 1, 31),
    "noon": time(12, 0),
    "patience": timedelta(minutes=1.5),
    "id": UUID(int=7),
    "price": Decimal("1.50"),
    "raw": b"\x00\xff",
    "colour": Colour.RED,
    "line": Line("a", Decimal(1)),
}
WRITTEN = {
    "at": "2026-01-31T09:30:00+00:00",
    "naive": "2026-01-31T09:30:00",
    "day": "2026-01-31",
    "noon": "12:00:00",
    "patience": 90.0,
    "id": "00000000-0000-0000-0000-000000000007",
    "price": "1.50",
    "raw": "AP8=",
    "colour": "red",
    "line": {"sku": "a", "price": "1", "count": 1},
}


def test_richer_values_are_written_as_documented() -> None:
    assert json.loads(JsonSerde().serialize(RICHER)) == WRITTEN
    assert MsgpackSerde().deserialize(MsgpackSerde().serialize(RICHER)) == WRITTEN | {"raw": b"\x00\xff"}


@in_any_time
@given(nested(st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)))
def test_msgpack_says_what_json_can_say_in_64_bits(value: Any) -> None:
    assert MsgpackSerde().deserialize(MsgpackSerde().serialize(value)) == value


@both
@pytest.mark.parametrize(("kind", "value"), [(Order, ORDER), (Model, MODEL), (Struct, STRUCT)])
def test_a_model_comes_back_as_it_was(serde: Any, kind: Any, value: Any) -> None:
    assert serde(kind).deserialize(serde(kind).serialize(value)) == value
    many = serde(dict[str, list[kind]] | None)
    assert many.deserialize(many.serialize({"a": [value]})) == {"a": [value]}
    assert many.deserialize(many.serialize(None)) is None


@both
def test_a_model_inside_a_model_comes_back_as_it_was(serde: Any) -> None:
    family = replace(ORDER, parent=ORDER)
    assert serde(Order).deserialize(serde(Order).serialize(family)) == family


def test_a_field_that_a_type_does_not_have_is_passed_over_and_one_that_it_needs_is_not() -> None:
    assert JsonSerde(Line).deserialize(b'{"sku": "a", "price": "1", "newer": true}') == Line("a", Decimal(1))
    with pytest.raises(ValidationError, match=r"it is not a valid Line: .*missing 1 required .*'price'"):
        JsonSerde(Line).deserialize(b'{"sku": "a"}')


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Line, "[]"),
        (list[Line], '[{"sku": 1, "price": "1"}]'),
        (int, "true"),
        (int, "1.5"),
        (float, '"1"'),
        (str, "null"),
        (None, "1"),
        (bool, "1"),
        (bytes, '"not base64"'),
        (datetime, '"yesterday"'),
        (datetime, "5"),
        (Decimal, '"one"'),
        (UUID, '"7"'),
        (timedelta, '"1"'),
        (timedelta, "1e300"),
        (Colour, '"green"'),
        (Literal["s", 1], "true"),
        (tuple[int, str], "[1]"),
        (list[int], "{}"),
        (dict[str, int], "[]"),
        (int | Line, '"x"'),
        (Model, '{"id": 1}'),
        (Struct, "{}"),
        (Note, "[]"),
    ],
)
def test_data_that_is_not_what_the_type_says_is_a_validation_error(kind: Any, data: str) -> None:
    with pytest.raises(ValidationError, match=r"^it"):
        JsonSerde(kind).deserialize(data.encode())


@both
@pytest.mark.parametrize("kind", [Order, Model, Struct, int])
def test_a_value_that_is_not_of_the_promised_class_is_refused(serde: Any, kind: Any) -> None:
    with pytest.raises(ValidationError, match=f"this must be a {kind.__name__}, not a str"):
        serialize_payload(serde(kind), "text", "one")


def test_an_integer_stays_one_among_several_types_and_is_read_as_a_float_where_only_that_is_said() -> None:
    assert repr(JsonSerde(float | int).deserialize(b"1")) == "1"
    assert repr(JsonSerde(float).deserialize(b"1")) == "1.0"


def test_without_its_package_msgpack_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(MissingExtraError, match=r'pip install "pgjq\[msgpack\]"'):
        MsgpackSerde()


def test_payload_and_result_have_serdes_of_their_own() -> None:
    queue = Queue("q", storage=MemoryStorage(), payload_serde=JsonSerde(Line), result_serde=MsgpackSerde(Model))

    @queue.execute
    def price(job: Job) -> Model:
        assert isinstance(job.payload, Line)
        return MODEL

    with queue:
        assert queue.enqueue_and_wait("a", Line("a", Decimal(1))) == MODEL
        assert queue.get_result("a") == MODEL
        assert queue.get_status("a").result == MODEL  # type: ignore[union-attr]
        assert queue.enqueue("a", Line("a", Decimal(1))).result == MODEL


def test_a_content_id_is_the_same_for_equal_content() -> None:
    assert content_id({"b": 1, "a": [True, None, "é"]}) == content_id({"a": [True, None, "é"], "b": 1})
    assert content_id({"a": 1}) == "015abd7f5cc57a2d"  # printf '{"a":1}' | sha256sum
    assert content_id({"a": 1}) != content_id({"a": "1"})
    assert content_id(RICHER) == content_id(WRITTEN)
    assert content_id(ORDER.lines) == content_id(list(ORDER.lines))


@pytest.mark.parametrize("payload", [object(), math.nan, {(1, 2): 3}, circular, "\ud800"])
def test_content_without_json_has_no_content_id(payload: Any) -> None:
    with pytest.raises(ValidationError, match="no canonical JSON"):
        content_id(payload)
