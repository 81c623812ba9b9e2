"""What every contender in Python answers: orders come as lines of JSON, answers go out the same way.

A contender says how to enqueue, how to start and stop a worker and how many jobs are left; what is timed is here, and
is the same for all of them. It runs in a process of its own, with the enqueuer and the worker side by side.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from importlib.metadata import version
from statistics import median
from typing import Any

PAUSE = 0.03
WORK = 0.001  # Seconds that a job of the kind "work" takes.
CONCURRENCY = 50


class Contender:
    """One job queue. `handled` counts runs; `started` has when the job of each number began."""

    package = ""
    settings = ""
    kinds = ("coroutine", "plain", "work")  # The handlers that it has.

    def __init__(self, address: str) -> None:
        self.address = address
        self.handled = 0
        self.started: dict[int, float] = {}

    async def setup(self) -> None:
        """Install the schema."""

    async def enqueue(self, number: int) -> None:
        raise NotImplementedError

    async def enqueue_many(self, numbers: range) -> None:
        raise NotImplementedError

    async def start(self, kind: str) -> None:
        """Start a worker for jobs of a kind: coroutine, plain or work."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    async def left(self) -> int:
        """Return how many jobs have not ended."""
        raise NotImplementedError

    async def empty(self) -> None:
        """Remove all jobs."""
        raise NotImplementedError

    async def call(self, number: int) -> Any:
        """Enqueue a job and wait for its result."""
        raise Unsupported(f"no result for {number}")

    async def run(self, number: int) -> int:
        """Be the handler that is a coroutine."""
        self.note(number)
        return number

    def run_plain(self, number: int) -> int:
        """Be the handler that is a plain function."""
        self.note(number)
        return number

    async def run_work(self, number: int) -> int:
        """Be the handler that waits for a millisecond."""
        self.note(number)
        await asyncio.sleep(WORK)
        return number

    def run_plain_work(self, number: int) -> int:
        """Be the plain handler that waits for a millisecond."""
        self.note(number)
        time.sleep(WORK)
        return number

    def note(self, number: int) -> None:
        self.started[number] = time.perf_counter()
        self.handled += 1


class Unsupported(Exception):
    """The contender has nothing like this."""


async def bulk(contender: Contender, count: int) -> float:
    began = time.perf_counter()
    await contender.enqueue_many(range(count))
    took = time.perf_counter() - began
    await contender.empty()
    return count / took


async def single(contender: Contender, count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        await contender.enqueue(number)
    took = time.perf_counter() - began
    await contender.empty()
    return count / took


async def drain(contender: Contender, count: int, kind: str) -> float:
    if kind not in contender.kinds:
        raise Unsupported(f"no handlers of the kind {kind}")
    try:
        await contender.enqueue_many(range(count))
        contender.handled, contender.started = 0, {}
        began = time.perf_counter()
        await contender.start(kind)
        while contender.handled < count:  # noqa: ASYNC110  (other threads may handle jobs)
            await asyncio.sleep(0.002)
        while await contender.left():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        took = time.perf_counter() - began
        await contender.stop()
    finally:
        await contender.empty()
    return count / took


async def pickup(contender: Contender, count: int) -> float:
    """Return the median of the milliseconds from the enqueue until the handler begins, in an idle worker."""
    await contender.start("coroutine")
    await asyncio.sleep(1.0)
    taken: list[float] = []
    for number in range(count):
        await asyncio.sleep(PAUSE)
        contender.started.pop(number, None)
        began = time.perf_counter()
        await contender.enqueue(number)
        while number not in contender.started:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        taken.append((contender.started[number] - began) * 1000)
    await contender.stop()
    await contender.empty()
    return median(taken)


async def call(contender: Contender, count: int) -> float:
    """Return the median of the milliseconds from a call to its result."""
    await contender.start("coroutine")
    await asyncio.sleep(1.0)
    taken: list[float] = []
    try:
        for number in range(count):
            await asyncio.sleep(PAUSE)
            began = time.perf_counter()
            await contender.call(number)
            taken.append((time.perf_counter() - began) * 1000)
    finally:
        await contender.stop()
        await contender.empty()
    return median(taken)


async def serve(contender: Contender) -> None:
    """Answer orders until the input ends."""
    loop = asyncio.get_running_loop()
    measures = {"bulk": bulk, "single": single, "drain": drain, "pickup": pickup, "call": call}
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        name, limit = order.pop("do"), order.pop("limit", None)
        try:
            answer: dict[str, Any] = {"value": 0.0}
            if name == "setup":
                await contender.setup()
                answer |= {"version": version(contender.package), "settings": contender.settings}
            elif name == "idle":
                await contender.start("coroutine")
            elif name == "end":
                await contender.stop()
            else:
                async with asyncio.timeout(limit):
                    answer["value"] = await measures[name](contender, **order)
        except TimeoutError:
            answer = {"error": f"not finished in {limit:g} s, {contender.handled} jobs handled"}
        except Unsupported as error:
            answer = {"unsupported": str(error)}
        except Exception as error:  # noqa: BLE001  (the one who asked is told)
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def main(make: type[Contender], *, uvloop: bool = False) -> None:
    """Be a contender: its address is the only argument."""
    factory = None
    if uvloop:
        from uvloop import new_event_loop as factory
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(make(sys.argv[1])))
