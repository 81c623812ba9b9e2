"""What is logged of errors that come again and again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pgjq.errors import SchemaError, StorageUnavailableError
from pgjq.worker import fault_log
from pgjq.worker.fault_log import FaultLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.worker.fault_log import Activity

AWAY = StorageUnavailableError("no answer")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(fault_log, "time", clock)
    return clock


@pytest.fixture
def log() -> FaultLog:
    return FaultLog(logging.getLogger("pgjq"), "ann", lambda _error, _doing: True)


def every_second(clock: Clock, count: int, call: Callable[[], None]) -> None:
    for _ in range(count):
        call()
        clock.now += 1


def fail(*errors: tuple[Activity, Exception]) -> None:
    for activity, error in errors:
        activity(error)


def test_an_outage_is_a_line_at_its_begin_summaries_and_a_line_at_its_end(
    clock: Clock, log: FaultLog, caplog: pytest.LogCaptureFixture
) -> None:
    claiming, settling = log.activity("claiming"), log.activity("settling")
    every_second(clock, 100, lambda: fail((claiming, AWAY), (settling, AWAY)))
    claiming.succeeded()
    settling.succeeded()
    assert caplog.messages == [
        "storage unavailable, retrying: no answer",
        "storage unavailable for 10 s, 21 tries failed, retrying: no answer",
        "storage unavailable for 30 s, 61 tries failed, retrying: no answer",
        "storage unavailable for 70 s, 141 tries failed, retrying: no answer",
        "storage available again after 100 s",
    ]
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False, False, False]
    assert {record.__dict__["worker"] for record in caplog.records} == {"ann"}


def test_the_storage_is_available_when_all_that_failed_works(
    clock: Clock, log: FaultLog, caplog: pytest.LogCaptureFixture
) -> None:
    claiming, settling, reaping = map(log.activity, ("claiming", "settling", "reaping"))
    claiming(AWAY)
    settling(AWAY)
    reaping.succeeded()
    claiming.succeeded()
    assert len(caplog.messages) == 1
    clock.now += 5
    settling.succeeded()
    settling.succeeded()
    assert caplog.messages[1:] == ["storage available again after 5 s"]


def test_a_storage_that_comes_and_goes_is_logged_less_and_less(
    clock: Clock, log: FaultLog, caplog: pytest.LogCaptureFixture
) -> None:
    claiming = log.activity("claiming")

    def come_and_go() -> None:
        claiming(AWAY)
        claiming.succeeded()

    every_second(clock, 1000, come_and_go)
    assert 10 <= len(caplog.messages) <= 20


def test_after_a_calm_minute_an_error_is_news_again(
    clock: Clock, log: FaultLog, caplog: pytest.LogCaptureFixture
) -> None:
    claiming = log.activity("claiming")
    for _ in range(3):
        claiming(AWAY)
        claiming.succeeded()
        clock.now += 61
    assert len(caplog.messages) == 6
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_each_kind_of_error_has_its_traceback_once(
    clock: Clock, log: FaultLog, caplog: pytest.LogCaptureFixture
) -> None:
    reset = StorageUnavailableError("reset")
    reset.__cause__ = ConnectionResetError()
    claiming, settling = log.activity("claiming"), log.activity("settling")
    errors = (claiming, AWAY), (settling, reset), (settling, SchemaError("no settle"))
    every_second(clock, 5, lambda: fail(*errors))
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        "storage unavailable, retrying: no answer",
        "storage unavailable for 0 s, 2 tries failed, retrying: reset",
        "settling failed, trying again: no settle",
    ]
    assert len(caplog.records) == 3


def test_other_errors_are_counted_and_summed_up(clock: Clock, log: FaultLog, caplog: pytest.LogCaptureFixture) -> None:
    settling = log.activity("settling")
    every_second(clock, 35, lambda: settling(SchemaError("no settle")))
    assert caplog.messages == [
        "settling failed, trying again: no settle",
        "settling failed 10 more times, trying again: no settle",
        "settling failed 20 more times, trying again: no settle",
    ]


def test_errors_that_callbacks_take_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Exception] = []

    def publish(error: Exception, _doing: str) -> bool:
        heard.append(error)
        return False

    claiming = FaultLog(logging.getLogger("pgjq"), "ann", publish).activity("claiming")
    claiming(AWAY)
    claiming.succeeded()
    assert heard == [AWAY]
    assert caplog.messages == []
