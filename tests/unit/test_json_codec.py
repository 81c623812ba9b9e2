"""What is written and read without the library's front door is what the front door writes and reads."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgjq.json_codec import read, writer

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.booleans() | st.none(), inner),
)
write = writer(lambda value: {"odd": repr(value)})


@given(values)
def test_values_are_written_as_the_library_writes_them(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert write(value) == text
    assert read(text) == json.loads(text)


@pytest.mark.parametrize("text", [" 1", "1\n", ' {"a": [1, 2]} ', "\t[]"])
def test_blanks_around_a_value_are_read_over(text: str) -> None:
    assert read(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", " ", "1 2", "[1", "{}x", "nul"])
def test_what_is_not_json_is_an_error_that_says_where(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        read(text)


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {(1, 2): 3}])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        write(value)


def test_a_value_that_holds_itself_is_refused_and_the_next_one_is_not() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ValueError, match="Circular"):
        write(value)
    assert write([[1]]) == "[[1]]"


def test_what_json_has_no_word_for_is_asked_for() -> None:
    assert write([1j]) == '[{"odd":"1j"}]'
