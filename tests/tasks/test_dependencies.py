"""Dependencies are provided for each run, closed after it, and replaced in tests."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self

import pytest

import pgjq
from pgjq import Depends, JobFailedError, MemoryStorage, Queue, ValidationError, using_dependencies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pgjq.testing.worker.harness import Harness

log: list[str] = []


def plain() -> str:
    """Provide a value."""
    log.append("plain")
    return "plain"


async def coroutine() -> str:
    await asyncio.sleep(0)
    return "coroutine"


def generator(value: str = Depends(plain)) -> Iterator[str]:
    log.append("open generator")
    try:
        yield f"generator of {value}"
    except ValueError:
        log.append("generator saw the error")
    finally:
        log.append("close generator")


async def async_generator(value: str = Depends(coroutine)) -> AsyncIterator[str]:
    log.append("open async generator")
    yield f"async generator of {value}"
    await asyncio.sleep(0)
    log.append("close async generator")


@contextmanager
def manager() -> Iterator[str]:
    yield "manager"
    log.append("close manager")


@asynccontextmanager
async def async_manager() -> AsyncIterator[str]:
    yield "async manager"
    log.append("close async manager")


class Session:
    """A context manager by class."""

    open = False

    def __enter__(self) -> Self:
        self.open = True
        return self

    def __exit__(self, *exc: object) -> None:
        log.append("close session")


shared = Session()


def get_shared() -> Session:
    return shared


def gather(*values: Any) -> list[Any]:
    return list(values)


EXPECTED = ["plain", "coroutine", "generator of plain", "async generator of coroutine", "manager", "async manager"]


@pytest.fixture(params=["plain", "coroutine"])
def style(request: pytest.FixtureRequest) -> str:
    """How the task is written."""
    return request.param


def test_every_kind_of_provider_in_every_kind_of_task(memory: Harness, style: str) -> None:
    async def case() -> None:
        log.clear()
        mail = memory.queue()

        def task(
            number: int,
            *,
            a: str = Depends(plain),
            b: str = Depends(coroutine),
            c: str = Depends(generator),
            d: str = Depends(async_generator),
            e: str = Depends(manager),
            f: str = Depends(async_manager),
            session: Session = Depends(Session),
            common: Session = Depends(get_shared),
            fail: bool = False,
        ) -> list[Any]:
            assert (session.open, common.open) == (True, False)
            log.append("run")
            if fail:
                raise ValueError("no")
            return [number, a, b, c, d, e, f]

        async def coroutine_task(number: int, *, a: str = Depends(plain), b: str = Depends(coroutine),
                                 c: str = Depends(generator), d: str = Depends(async_generator),
                                 e: str = Depends(manager), f: str = Depends(async_manager),
                                 session: Session = Depends(Session), common: Session = Depends(get_shared),
                                 fail: bool = False) -> list[Any]:  # fmt: skip
            return task(number, a=a, b=b, c=c, d=d, e=e, f=f, session=session, common=common, fail=fail)

        chosen = mail.task(max_attempts=1)(task if style == "plain" else coroutine_task)
        async with memory.started(mail):
            assert await memory.call((await memory.call(chosen.enqueue, 7)).result) == [7, *EXPECTED]
            closing = ["close session", "close async manager", "close manager", "close async generator"]
            assert log == [
                "plain", "open generator", "open async generator", "run", *closing, "close generator"
            ]  # fmt: skip
            log.clear()
            handle = await memory.call(chosen.enqueue, 7, fail=True)
            with pytest.raises(JobFailedError, match="no"):
                await memory.call(handle.result)
            # A manager that does not handle the exception is left by it; one that swallows it changes nothing.
            assert [line for line in log if "saw" in line or "session" in line] == [
                "close session", "generator saw the error"
            ]  # fmt: skip
            with using_dependencies({plain: lambda: "fake", coroutine: plain, async_manager: "value"}):
                handle = await memory.call(chosen.enqueue, 7)
                assert (await memory.call(handle.result))[1:5] == [
                    "fake", "plain", "generator of fake", "async generator of plain"
                ]  # fmt: skip
            with pytest.raises(ValidationError, match="'a' is a dependency of task"):
                await memory.call(chosen.enqueue, 7, a="mine")
            with pytest.raises(ValidationError, match="'a' is a dependency of task"):
                chosen.call(number=7, a="mine")

    memory.run(case())


def test_a_provider_runs_for_each_run_and_knows_its_job() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    queue = Queue("q", storage=MemoryStorage())
    runs: list[Any] = []

    def provider() -> int:
        variable.set(pgjq.current_job().attempts)
        return pgjq.current_job().attempts

    @queue.task(retry_backoff=False)
    def task(value: int = Depends(provider)) -> None:
        runs.append((value, variable.get()))
        if len(runs) < 3:
            raise ValueError

    with queue:
        task.enqueue().result()
    assert runs == [(1, 1), (2, 2), (3, 3)]


def test_wrong_dependencies_are_refused_at_the_definition() -> None:
    queue = Queue("q", storage=MemoryStorage())
    with pytest.raises(ValidationError, match="Depends takes a function"):
        Depends(7)  # type: ignore[call-overload]

    def one(value: Any = None) -> Any: ...

    def two(value: Any = Depends(one)) -> Any: ...

    one.__defaults__ = (Depends(two),)
    with pytest.raises(ValidationError, match=r"dependencies must not depend on themselves: .*one.*two.*one"):
        queue.task(lambda value=Depends(one): value)

    def positional(value: Any = Depends(plain), /) -> None: ...

    with pytest.raises(ValidationError, match="positional-only"):
        queue.task(positional)

    @queue.task
    def called(value: Any = Depends(plain)) -> Any:
        return value.text

    with pytest.raises(AttributeError, match="pass one when you call the function yourself"):
        called()
    assert called(type("Fake", (), {"text": 5})) == 5
