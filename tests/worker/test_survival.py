"""Workers are killed, stopped and cut off, at random moments of a busy queue: no job is lost, none is done twice."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import Client, NewJob, PostgresStorage
from tests.worker.crew import Crew
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TIMES = 50
WORKERS = 4
LOW = 150
MORE = 300


class Scene:
    """A queue that never runs dry, and what the database says about it."""

    def __init__(self, conninfo: str, storage: PostgresStorage, seed: int) -> None:
        self.conninfo = conninfo
        self.chance = random.Random(seed)  # noqa: S311
        self.enqueued = 0
        self._client = Client(storage)
        self._connection = psycopg.connect(conninfo, autocommit=True)

    def ask(self, question: str) -> Any:
        return self._connection.execute(question.encode()).fetchone()[0]  # type: ignore[index]

    def tell(self, order: str) -> None:
        self._connection.execute(order.encode())

    def done(self) -> int:
        return self.ask("select count(*) from pgjq.done")

    def busy(self) -> None:
        """Let some more jobs be done, a random number of them, and keep the queue filled: trouble finds work to hit."""
        goal = self.done() + self.chance.randrange(25)
        while True:
            if self.ask("select count(*) from pgjq.job where ready") < LOW:
                jobs = [NewJob(str(self.enqueued + n), None, max_attempts=1000) for n in range(MORE)]
                self._client.enqueue_many("q", jobs)
                self.enqueued += MORE
            if self.done() >= goal:
                return
            time.sleep(0.002)

    def finish(self) -> None:
        """Wait for the last job; the suite's time-out is the limit."""
        while self.ask("select count(*) from pgjq.job"):
            time.sleep(0.01)

    def check(self) -> None:
        assert self.ask("select count(*) from pgjq.done where state = 3") == self.enqueued
        assert self.ask("select count(*) from pgjq.done") == self.enqueued
        assert self.ask("select count(distinct seq) from pgjq.done") == self.enqueued

    def check_effects(self) -> None:
        """One effect for each job, by the run whose completion is recorded."""
        assert self.ask("select count(*) from effect") == self.enqueued
        assert self.ask("select count(distinct id) from effect") == self.enqueued
        assert self.ask("select count(*) from effect join pgjq.body using (id) join pgjq.done using (seq, lease)") == (
            self.enqueued
        )

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def scene(database: str, postgres: PostgresStorage, request: pytest.FixtureRequest) -> Iterator[Scene]:
    seed = int(os.environ.get("PGJQ_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"PGJQ_TEST_SEED={seed} for {request.node.name}")  # noqa: T201
    scene = Scene(database, postgres, seed)
    scene.tell("create table effect (id text not null, lease integer not null)")
    yield scene
    scene.tell("drop table effect")
    scene.close()


class Trouble:
    """Makes trouble for a crew, one incident at a time."""

    def __init__(self, scene: Scene, crew: Crew, handlers: list[str], stack: ExitStack) -> None:
        self.scene = scene
        self.crew = crew
        self.proxies = [stack.enter_context(Proxy(scene.conninfo)) for _ in range(WORKERS)]
        self._handlers = [handlers[n % len(handlers)] for n in range(WORKERS)]
        self.pids = [self._start(n) for n in range(WORKERS)]
        self._until: dict[int, tuple[float, Callable[[], None]]] = {}

    def kill(self) -> None:
        """Kill one, and start another in its place."""
        n = self.scene.chance.randrange(WORKERS)
        self.crew.kill(self.pids[n])
        self.pids[n] = self._start(n)

    def stop(self) -> None:
        """Stop one, for a moment or past its lease."""
        n = self._pick()
        os.kill(self.pids[n], signal.SIGSTOP)
        self._later(n, lambda: os.kill(self.pids[n], signal.SIGCONT))

    def cut(self) -> None:
        """Cut one off: its connections once, or the way to the server for a while, with or without a word."""
        n = self._pick()
        proxy = self.proxies[n]
        self.scene.chance.choice([proxy.cut, proxy.refuse, proxy.silence])()
        self._later(n, proxy.restore)

    def end(self) -> None:
        """Let everybody go on."""
        while self._until:
            self._pick(WORKERS)

    def _start(self, n: int) -> int:
        return self.crew.start(self.proxies[n].conninfo, self._handlers[n])

    def _later(self, n: int, mend: Callable[[], None]) -> None:
        self._until[n] = time.monotonic() + self.scene.chance.uniform(0, 0.9), mend

    def _pick(self, well: int = 2) -> int:
        """Choose one who is well; there are at least `well` of them, so that the queue moves."""
        while True:
            now = time.monotonic()
            for n in [n for n, (until, _) in self._until.items() if until <= now]:
                self._until.pop(n)[1]()
            fit = [n for n in range(WORKERS) if n not in self._until]
            if len(fit) >= well:
                return self.scene.chance.choice(fit)
            time.sleep(0.002)


def survive(scene: Scene, handlers: list[str], times: int) -> None:
    """Make each kind of trouble so many times, in a random order: several workers are in trouble at once."""
    troubles = ["kill", "stop", "cut"] * times
    scene.chance.shuffle(troubles)
    with ExitStack() as stack:
        crew = stack.enter_context(Crew())
        trouble = Trouble(scene, crew, handlers, stack)
        for name in troubles:
            scene.busy()
            getattr(trouble, name)()
        trouble.end()
        scene.finish()
        assert crew.complaints() == ""
    scene.check()


def test_effects_in_a_transaction_happen_once_whatever_happens_to_workers(scene: Scene) -> None:
    survive(scene, ["transact", "transact_async"], TIMES)
    scene.check_effects()


def test_every_job_of_a_plain_handler_is_completed_whatever_happens_to_workers(scene: Scene) -> None:
    """What such a handler does may happen twice; that it was completed is recorded once."""
    survive(scene, ["plain", "plain_async"], TIMES // 5)
