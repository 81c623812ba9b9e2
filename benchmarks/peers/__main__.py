"""The command behind `make bench-peers`: pgjq beside other job queues, on one server, by turns.

Each contender is a process of its own with a fresh database, or Redis, and answers the same orders (`contenders/`). In
each round each of them gives one sample of each measure, and the order changes from round to round; the table has the
median and, in brackets, the lowest and the highest sample. Peers in Python are installed into the directory `peers` of
the virtual environment (or into PGJQ_BENCH_PEERS), those in JavaScript into a temporary directory. A peer that cannot
be installed is named, and so is a measure that a peer does not finish in time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.databases import connect, empty_database, temporary_server
from benchmarks.node import installed, node_binary
from benchmarks.peers.contender import HERE, Peer, PeerError
from benchmarks.peers.report import Table
from benchmarks.redis_servers import redis_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.embedded import EmbeddedServer

PEERS = Path(os.environ.get("PGJQ_BENCH_PEERS") or Path(sys.prefix) / "peers")
PYTHON = ("pgqueuer", "procrastinate", "awa")
ON_REDIS = ("celery", "dramatiq", "rq")
NODE = {"graphile": "graphile-worker", "pgboss": "pg-boss"}
NAMES = ("pgjq", *PYTHON, *NODE, *ON_REDIS)


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    rounds: int = 5
    bulk: int = 20_000
    single: int = 500
    drained: int = 20_000
    worked: int = 5_000
    calls: int = 100
    idle: float = 20.0
    limit: float = 60.0  # Seconds that one sample may take.


QUICK = Scale(1, 500, 30, 500, 300, 8, 2.0, 30.0)
MODERATE = Scale(3, 2_000, 100, 600, 400, 10, 2.0, 15.0)
SIZES: dict[str | None, Scale] = {"quick": QUICK, "moderate": MODERATE}


@click.command()
@click.option("--quick", "size", flag_value="quick", help="One round of little work: shows that everything runs.")
@click.option("--moderate", "size", flag_value="moderate", help="Three rounds of less work than usual: four minutes.")
@click.option("--peer", "chosen", multiple=True, type=click.Choice(NAMES), help="Contender; may be repeated.")
@click.option(
    "--output", type=click.Path(path_type=Path), default="peers", show_default=True, help="Name of the files."
)
def main(*, size: str | None, chosen: tuple[str, ...], output: Path) -> None:
    """Measure job queues side by side; write a table and a chart."""
    table = Table()
    with ExitStack() as stack:
        server = stack.enter_context(temporary_server())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgjq-peers-")))
        peers = list(_started(stack, server, folder, chosen or NAMES, table))
        for _ in _measured(peers, SIZES.get(size, Scale()), server, table):
            _write(table, output)  # After each part: what was measured stays if the rest fails.
    click.echo(f"{_write(table, output)}\nthe table is in {output}.md, the chart in {output}.svg")


def _write(table: Table, output: Path) -> str:
    chart = output.with_suffix(".svg")
    arguments = [each for each in sys.argv[1:] if each != "--output" and each != str(output)]
    page = table.markdown(" ".join(arguments), chart.name)
    output.with_suffix(".md").write_text(page)
    chart.write_text(table.chart())
    return page


def _started(
    stack: ExitStack, server: EmbeddedServer, folder: Path, names: tuple[str, ...], table: Table
) -> Iterator[Peer]:
    python = _install_python() if {*PYTHON, *ON_REDIS} & set(names) else None
    for name in names:
        try:
            peer = stack.enter_context(_peer(stack, server, folder, name, python))
        except PeerError as error:
            table.leave_out(name, f"{error}; {_end(folder / f'{name}.log')}")
            continue
        table.add(name, peer.version, peer.settings)
        yield peer


def _peer(stack: ExitStack, server: EmbeddedServer, folder: Path, name: str, python: str | None) -> Peer:
    log = folder / f"{name}.log"
    if name in NODE:
        package = stack.enter_context(installed(NODE[name]))
        if package is None:
            raise PeerError("npm could not install it")
        conninfo = stack.enter_context(empty_database(server, name))
        with connect(conninfo) as connection:
            where = (connection.info.host, connection.info.user, name)
        for script in ("protocol.cjs", f"{name}.cjs"):
            (package / script).write_text((HERE / script).read_text())
        return Peer(name, (node_binary(), f"{name}.cjs", *where), conninfo, package, log)
    address = stack.enter_context(redis_url() if name in ON_REDIS else empty_database(server, name))
    interpreter = sys.executable if name == "pgjq" else python
    if interpreter is None:
        raise PeerError("pip could not install it")
    return Peer(name, (interpreter, str(HERE / f"{name}_contender.py"), address), address, folder, log)


def _install_python() -> str | None:
    if not (PEERS / "bin" / "python").exists():
        subprocess.run((sys.executable, "-m", "venv", str(PEERS)), check=True)
    requirements, stamp = Path(__file__).parent / "requirements.txt", PEERS / "installed.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        pip = (str(PEERS / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check")
        if subprocess.run((*pip, "-r", str(requirements)), check=False).returncode:
            return None
        stamp.write_text(requirements.read_text())
    return str(PEERS / "bin" / "python")


def _measured(peers: list[Peer], scale: Scale, server: EmbeddedServer, table: Table) -> Iterator[None]:
    orders: dict[str, dict[str, Any]] = {
        "bulk enqueue (jobs/s)": {"order": "bulk", "count": scale.bulk},
        "single enqueue (jobs/s)": {"order": "single", "count": scale.single},
        "drain, coroutine (jobs/s)": {"order": "drain", "count": scale.drained, "kind": "coroutine"},
        "drain, plain function (jobs/s)": {"order": "drain", "count": scale.drained, "kind": "plain"},
        "drain, 1 ms of work at 50 (jobs/s)": {"order": "drain", "count": scale.worked, "kind": "work"},
        "pickup, p50 (ms)": {"order": "pickup", "count": scale.calls},
        "request and response, p50 (ms)": {"order": "call", "count": scale.calls},
    }
    if not peers:
        return
    failed: defaultdict[str, set[str]] = defaultdict(set)
    for number in range(scale.rounds):
        for what, order in orders.items():
            turn = number % len(peers)
            for peer in peers[turn:] + peers[:turn]:
                if what in failed[peer.name]:
                    continue
                began = time.monotonic()
                try:
                    answer = peer.ask(**order, limit=scale.limit)
                except PeerError as error:
                    failed[peer.name].add(what)
                    table.note(str(error))
                    continue
                finally:
                    _progress(f"round {number + 1}, {what}, {peer.name}: {time.monotonic() - began:.1f} s")
                if answer is None:
                    failed[peer.name].add(what)
                else:
                    table.record(peer.name, what, answer["value"])
        yield
    for peer in peers:
        _progress(f"idle, {peer.name}")
        idle = peer.idle(scale.idle, server.conninfo)
        table.record(peer.name, "idle: connections", idle.connections)
        table.record(peer.name, "idle: transactions or commands a second", idle.statements)
        table.record(peer.name, "idle: processor (ms/s)", idle.processor)
        table.record(peer.name, "idle: memory (MB)", idle.memory)
    yield


def _progress(text: str) -> None:
    click.echo(text, err=True)


def _end(log: Path) -> str:
    return log.read_text()[-300:].strip().replace("\n", " ") if log.exists() else ""


if __name__ == "__main__":
    main()
