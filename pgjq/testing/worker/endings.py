"""Worker suite: any result or exception of a handler ends only its run, not its worker."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.errors import JobFailedError
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import echo

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.testing.worker.harness import Harness, Style

TEN_MEGABYTES = 10_000_000


class WithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this exception has no text")


class Unusual(BaseException):
    pass


ERRORS: dict[str, BaseException] = {
    "ValueError": ValueError("no such thing"),
    "WithoutText": WithoutText(),
    "ExceptionGroup": ExceptionGroup("several", [ValueError("one"), TypeError("two")]),
    "BaseExceptionGroup": BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError("two")]),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "SystemExit": SystemExit(3),
    "GeneratorExit": GeneratorExit(),
    "StopIteration": StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration(),
    "CancelledError": asyncio.CancelledError(),
    "TimeoutError": TimeoutError(),
    "Unusual": Unusual("not an Exception"),
}
TEXTS = {"nul": "a\0b", "surrogate": "a\ud800b", "long": "x" * 100_000, "unicode": "☃ \U0001f600", "empty": ""}
RESULTS: dict[str, Any] = {
    "none": None,
    "false": False,
    "zero": 0,
    "empty": ["", [], {}],
    "nested": {"a": [{"b": [None, True, 1.5, {"c": "d"}]}]},
    "unicode": "☃ \U0001f600 \x7f \u2028",
    "nul": "a\0b",
    "integer": 2**200,
    "small": 5e-324,
}


class WritesText:
    """A serde that violates its contract by not returning bytes."""

    def serialize(self, value: Any) -> Any:
        return str(value)

    def deserialize(self, data: bytes) -> Any:
        return data


class Raw:
    """A serde that passes bytes through."""

    def serialize(self, value: Any) -> bytes:
        return value

    def deserialize(self, data: bytes) -> bytes:
        return data


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Endings(WorkerCases):
    """Results and exceptions of handlers."""

    @case
    async def test_every_exception_follows_the_retry_policy_and_the_slot_lives_on(
        self, harness: Harness, style: Style
    ) -> None:
        def handler(job: Any) -> Any:
            if job.payload in ERRORS:
                raise ERRORS[job.payload]
            return job.payload

        queue = harness.queue(handler, style=style, max_attempts=2)
        async with harness.started(queue):
            for name in ERRORS:
                await harness.call(queue.enqueue, name, name)
            ended = {name: await harness.until_state(queue, name, "failed") for name in ERRORS}
            assert await harness.call(queue.enqueue_and_wait, "probe", "still here") == "still here"
        assert {name: status.attempts for name, status in ended.items()} == dict.fromkeys(ERRORS, 2)
        # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError.
        told = {name: status.error.type.rpartition(".")[2] for name, status in ended.items()}
        assert told | {"StopIteration": ""} == {name: name for name in ERRORS} | {"StopIteration": ""}
        assert all(status.error.traceback for status in ended.values())

    @case
    async def test_the_first_call_of_a_callback_counts_from_any_thread(self, harness: Harness) -> None:
        def callback(job: Any, done: Callable[..., None]) -> None:
            def call() -> None:
                done("no exception" if job.payload == "text" else None, 1)
                done(ValueError("too late"))
                done(None, 2)

            threading.Thread(target=call).start()

        queue = harness.queue(max_attempts=1)
        queue.execute(callback)
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "a", None) == 1
            with pytest.raises(JobFailedError, match="no exception"):
                await harness.call(queue.enqueue_and_wait, "b", "text")

    @case
    async def test_a_retry_after_an_unusual_exception_can_complete(self, harness: Harness, style: Style) -> None:
        def handler(job: Any) -> int:
            if job.attempts == 1:
                raise Unusual
            return job.attempts

        queue = harness.queue(handler, style=style)
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "a", None) == 2

    @case
    async def test_an_error_with_any_text_is_recorded(self, harness: Harness) -> None:
        def handler(job: Any) -> None:
            raise ValueError(TEXTS[job.payload])

        queue = harness.queue(handler, max_attempts=1)
        async with harness.started(queue):
            for name in TEXTS:
                await harness.call(queue.enqueue, name, name)
            ended = {name: await harness.until_state(queue, name, "failed") for name in TEXTS}
        assert {status.error.type for status in ended.values()} == {"ValueError"}
        assert ended["unicode"].error.message == TEXTS["unicode"]
        assert ended["empty"].error.message == ""
        assert ended["nul"].error.message.startswith("a")
        assert ended["long"].error.message.startswith("xxxx")

    @case
    async def test_a_result_that_cannot_be_serialised_fails_the_job_for_good(
        self, harness: Harness, style: Style
    ) -> None:
        results = {"object": object(), "nan": float("nan"), "set": {1}, "cyclic": cyclic(), "key": {(1, 2): 3}}
        queue = harness.queue(lambda job: results[job.id], style=style, max_attempts=3)
        async with harness.started(queue):
            for name in results:
                await harness.call(queue.enqueue, name, None)
            ended = [await harness.until_state(queue, name, "failed") for name in results]
            with pytest.raises(JobFailedError, match="serialised"):
                await harness.call(queue.enqueue_and_wait, "object", None)
        assert [status.attempts for status in ended] == [1] * len(results)
        assert all("serialised" in status.error.message for status in ended)

    @case
    async def test_a_result_serde_that_returns_no_bytes_fails_the_job_for_good(self, harness: Harness) -> None:
        queue = harness.queue(echo, result_serde=WritesText())
        async with harness.started(queue):
            await harness.call(queue.enqueue, "a", 1)
            status = await harness.until_state(queue, "a", "failed", "completed")
        assert (status.state, status.attempts) == ("failed", 1)
        assert "serialised" in status.error.message

    @case
    async def test_results_come_back_as_they_were(self, harness: Harness, style: Style) -> None:
        queue = harness.queue(echo, style=style)
        async with harness.started(queue):
            came = {name: await harness.call(queue.enqueue_and_wait, name, value) for name, value in RESULTS.items()}
        assert came == RESULTS
        assert {name: await harness.call(queue.get_result, name, "absent") for name in RESULTS} == RESULTS
        assert (await harness.call(queue.get_status, "nested")).result == RESULTS["nested"]

    @case
    @pytest.mark.parametrize("mode", ["async"])
    async def test_ten_megabytes_go_in_and_come_out(self, harness: Harness) -> None:
        queue = harness.queue(lambda job: job.payload[::-1])
        payload = "ab" * (TEN_MEGABYTES // 2)
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "large", payload) == payload[::-1]
            assert await harness.call(queue.enqueue_and_wait, "small", "ab") == "ba"

    @case
    async def test_a_payload_that_the_worker_cannot_read_fails_its_job_and_no_other(
        self, harness: Harness, style: Style
    ) -> None:
        producer, queue = harness.queue(payload_serde=Raw()), harness.queue(echo, style=style)
        async with harness.started(queue):
            for name, data in {"text": b"{", "bytes": b"\xff\xfe", "empty": b""}.items():
                await harness.call(producer.enqueue, name, data)
                status = await harness.until_state(queue, name, "failed")
                assert (status.attempts, bool(status.error.message)) == (1, True)
            assert await harness.call(queue.enqueue_and_wait, "readable", 1) == 1
