"""Kinds of faults, and a seeded plan of them. A kind is a context manager: the fault lasts as long as its block.

A kind draws its choices from the `Random` that it is given, and from nothing that depends on time, so that a seed names
the same faults in every run. Each has a scope: in one round there is at most one fault of the scope `server`, beside
others that hit processes and their connections.
"""

from __future__ import annotations

import contextlib
import random
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tests.chaos.servers import MAKERS, MANY, POOLED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from tests.chaos.fleet import Fleet
    from tests.chaos.network import FaultyProxy
    from tests.chaos.servers import StorageName

Scope = Literal["process", "server"]
STORAGES: tuple[StorageName, ...] = tuple(MAKERS)
MOST_AT_ONCE = 3


@dataclass
class System:
    """What faults act on. `report` takes what a fault itself finds wrong: the name of a violation and its story."""

    servers: Any
    fleet: Fleet
    report: Callable[[str, str], None]

    @property
    def proxies(self) -> dict[str, FaultyProxy]:
        """Return the proxies, in an order that does not depend on time."""
        return dict(sorted(self.servers.proxies.items()))


@dataclass(frozen=True)
class Kind:
    """A kind of fault, named after its function; `hold` is how many seconds it lasts, from and to."""

    name: str
    text: str
    begin: Callable[[System, random.Random], contextlib.AbstractContextManager[None]]
    scope: Scope
    storages: tuple[StorageName, ...]
    hold: tuple[float, float]
    weight: float


KINDS: dict[str, Kind] = {}


def kind(
    scope: Scope, *storages: StorageName, hold: tuple[float, float] = (0.1, 0.5), weight: float = 1.0
) -> Callable[[Callable[[System, random.Random], Generator[None]]], None]:
    """Register a kind of fault."""

    def register(begin: Callable[[System, random.Random], Generator[None]]) -> None:
        text = (begin.__doc__ or "").partition("\n")[0]
        name = begin.__name__
        manager = contextlib.contextmanager(begin)
        KINDS[name] = Kind(name, text, manager, scope, storages or STORAGES, hold, weight)

    return register


@dataclass(frozen=True)
class Fault:
    """One fault of a plan."""

    kind: Kind
    seed: int
    seconds: float

    def begin(self, system: System) -> contextlib.AbstractContextManager[None]:
        return self.kind.begin(system, random.Random(self.seed))  # noqa: S311


def plan(seed: int, storage: StorageName, names: tuple[str, ...] = ()) -> Iterator[list[Fault]]:
    """Yield rounds of faults that begin together, without an end; `names` chooses kinds."""
    chance = random.Random(f"{seed} {storage}")  # noqa: S311
    kinds = [kind for kind in KINDS.values() if storage in kind.storages and (not names or kind.name in names)]
    while True:
        yield _round(chance, kinds)


def _round(chance: random.Random, kinds: list[Kind]) -> list[Fault]:
    chosen: list[Kind] = []
    for kind in chance.choices(kinds, [kind.weight for kind in kinds], k=chance.randint(1, MOST_AT_ONCE)):
        if kind.scope == "process" or all(other.scope == "process" for other in chosen):
            chosen.append(kind)
    return [Fault(kind, chance.getrandbits(32), chance.uniform(*kind.hold)) for kind in chosen]


@kind("process", weight=3)
def kill_process(system: System, chance: random.Random) -> Generator[None]:
    """Kill a process with SIGKILL, and start another in its place."""
    system.fleet.replace(chance.choice(system.fleet.replaced))
    yield


@kind("process", weight=2)
def terminate_process(system: System, chance: random.Random) -> Generator[None]:
    """End a worker or a reaper with SIGTERM, in time whatever else is wrong, and start another in its place."""
    name = chance.choice([name for name in system.fleet.replaced if name.startswith(("worker", "reaper"))])
    yield  # After the other faults of the round have begun, and before they end.
    if not system.fleet.terminate(name):
        system.report("slow stop", f"{name} did not end in time after SIGTERM")
    system.fleet.start_again(name)


@kind("process")
def kill_supervisor(system: System, _chance: random.Random) -> Generator[None]:
    """Kill the supervisor of several worker processes: they end, the parent notices, and another is started."""
    family = system.fleet.kill_supervisor(MANY)
    yield
    if not system.fleet.has_ended(MANY, family):
        system.report("orphan", f"processes of {MANY} outlived their supervisor")
    system.fleet.start_again(MANY)


@kind("process", hold=(0.1, 1.0))
def stop_process_for_a_moment(system: System, chance: random.Random) -> Generator[None]:
    """Stop a process with SIGSTOP for less than its lease."""
    with system.fleet.stopped(chance.choice(system.fleet.names)):
        yield


@kind("process", hold=(2.2, 3.5))
def stop_process_past_its_lease(system: System, chance: random.Random) -> Generator[None]:
    """Stop a process with SIGSTOP until its leases have lapsed."""
    with system.fleet.stopped(chance.choice(system.fleet.names)):
        yield


@kind("process", weight=0.5)
def kill_every_replaceable_process(system: System, _chance: random.Random) -> Generator[None]:
    """Kill half of the fleet at once, and start others."""
    for name in system.fleet.replaced:
        system.fleet.kill(name)
    yield
    for name in system.fleet.replaced:
        system.fleet.start_again(name)


def _chosen_proxies(system: System, chance: random.Random) -> list[FaultyProxy]:
    """Choose one proxy, or at times all of them."""
    proxies = list(system.proxies.values())
    return proxies if chance.random() < 0.25 else [chance.choice(proxies)]


@kind("process", "postgres", "redis", weight=2)
def cut_connections(system: System, chance: random.Random) -> Generator[None]:
    """Cut the connections of a process, or of all."""
    for proxy in _chosen_proxies(system, chance):
        proxy.cut()
    yield


@kind("process", "postgres", "redis", hold=(0.3, 3.0))
def refuse_connections(system: System, chance: random.Random) -> Generator[None]:
    """Cut and refuse the connections of a process, or of all."""
    with contextlib.ExitStack() as stack:
        for proxy in _chosen_proxies(system, chance):
            stack.enter_context(proxy.refusing())
        yield


@kind("process", "postgres", "redis", hold=(0.3, 4.0))
def silence_connections(system: System, chance: random.Random) -> Generator[None]:
    """Pass nothing on for a process, or for all, on connections that stay open."""
    with contextlib.ExitStack() as stack:
        for proxy in _chosen_proxies(system, chance):
            stack.enter_context(proxy.silent())
        yield


@kind("process", "postgres", "redis", hold=(12.0, 14.0), weight=0.2)
def silence_connections_for_long(system: System, chance: random.Random) -> Generator[None]:
    """Pass nothing on for longer than every time-out, then cut the silent connections."""
    proxies = _chosen_proxies(system, chance)
    with contextlib.ExitStack() as stack:
        for proxy in proxies:
            stack.enter_context(proxy.silent())
        yield
        for proxy in proxies:
            proxy.cut()


@kind("process", "postgres", "redis")
def forget_connections(system: System, chance: random.Random) -> Generator[None]:
    """Leave the connections of a process, or of all, half open: they take bytes and never answer again."""
    # Behind a pooler pgjq cannot ask about a session, and waits for a minute.
    proxies = [proxy for name, proxy in system.proxies.items() if name != POOLED]
    for proxy in proxies if chance.random() < 0.25 else [chance.choice(proxies)]:
        proxy.forget()
    yield


@kind("process", "postgres", "redis", hold=(0.5, 2.0))
def delay_messages(system: System, chance: random.Random) -> Generator[None]:
    """Delay every message of a process, or of all."""
    seconds = chance.uniform(0.02, 0.2)
    with contextlib.ExitStack() as stack:
        for proxy in _chosen_proxies(system, chance):
            stack.enter_context(proxy.slow(seconds))
        yield


@kind("process", "postgres", "redis", hold=(0.1, 1.0))
def tear_messages(system: System, chance: random.Random) -> Generator[None]:
    """Cut connections in the middle of a message, in either direction."""
    with contextlib.ExitStack() as stack:
        for proxy in _chosen_proxies(system, chance):
            stack.enter_context(proxy.tearing())
        yield


def signal_all(system: System, number: signal.Signals, role: str) -> None:
    """Send a signal to every process of a role."""
    for name in system.fleet.names:
        if name.startswith(role):
            system.fleet.signal(name, number)


@kind("server", hold=(2.2, 3.0), weight=0.5)
def stop_every_worker(system: System, _chance: random.Random) -> Generator[None]:
    """Stop all workers with SIGSTOP until their leases have lapsed, as a machine does that sleeps."""
    signal_all(system, signal.SIGSTOP, "worker")
    yield
    signal_all(system, signal.SIGCONT, "worker")
