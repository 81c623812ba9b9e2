"""Payloads and results as bytes."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq import Client, JsonSerde, MemoryStorage, ValidationError
from pgjq.serde import serialize_payload

in_any_time = running(deadline=None)

letters = st.characters(exclude_categories=["Cs"])
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(letters),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(letters), inner),
)


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
    "value", [{1, 2}, object(), b"bytes", Decimal(1), math.nan, math.inf, [-math.inf], "\ud800", {(1, 2): 3}, circular]
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
    (record,) = storage.records.values()
    assert record.payload == b"\x00\xff"
