"""The command: change the code of leases, retries and policies at each place, and list what no test notices.

Each mutant runs in a process of its own, which imports the changed module instead of the file. It runs the module's
own unit tests, then those of its neighbours, then seeded histories (`pgjq.testing.simulation`), then the conformance
suite in memory, until one of them fails.
`accepted.txt` has the survivors that are equal to the original, each with the reason.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tests.mutation.mutants import Mutant, mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
ACCEPTED = Path(__file__).parent / "accepted.txt"
UNIT = tuple(
    f"tests/unit/test_{name}.py"
    for name in ("lease_policy", "lease_deadline", "retry", "outcome", "policy", "stall_detection_times", "defaults")
)
# Each module, and the test file that notices most of its mutants: it runs first.
MODULES = {
    "pgjq/lease.py": "tests/unit/test_lease_policy.py",
    "pgjq/retry.py": "tests/unit/test_retry.py",
    "pgjq/policy.py": "tests/unit/test_policy.py",
    "pgjq/outcome.py": "tests/unit/test_outcome.py",
}
HISTORIES = 400
SECONDS = 600
KILLED, SURVIVED = 1, 0


class ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a given source."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._source = name, source

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        del path, target
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: Any) -> None:
        exec(compile(self._source, self._name, "exec"), module.__dict__)  # noqa: S102


def survives(name: str, mutant: Mutant, check: Callable[[], bool]) -> bool:
    """Run a check with a mutant in a child process; say whether it noticed nothing."""
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.meta_path.insert(0, ChangedModule(name, mutant.source))
        signal.alarm(SECONDS)  # A mutant that never ends is killed.
        status = KILLED
        with contextlib.suppress(BaseException):
            status = SURVIVED if check() else KILLED
        os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == SURVIVED


def units() -> bool:
    """Run the unit tests of these modules."""
    return passes(*UNIT)


def histories() -> bool:
    """Play seeded histories, with and without lost replies."""
    from pgjq.testing.simulation import play
    from pgjq.testing.simulation_losses import play_lossy

    for seed in range(HISTORIES):
        play(seed)
        play_lossy(seed)
    return True


def conformance() -> bool:
    """Run the conformance suite in memory."""
    return passes("tests/storage_conformance/test_memory.py")


def passes(*tests: str) -> bool:
    """Run tests until one fails; say whether all passed."""
    import pytest

    return pytest.main(["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]) == 0


def accepted() -> set[str]:
    """Return the survivors that are explained."""
    lines = ACCEPTED.read_text().splitlines()
    return {line for line in lines if line and not line.startswith(("#", "    "))}


def survivors(path: str, numbers: range) -> Iterator[str]:
    """Yield the mutants of a module that no test notices."""
    name = path.removesuffix(".py").replace("/", ".")
    known, source = accepted(), (ROOT / path).read_text()
    checks = (partial(passes, MODULES[path]), units, histories, conformance)
    if not all(survives(name, Mutant(0, "", source), check) for check in checks):
        raise click.ClickException(f"{path}: the tests fail without any change, so they would notice every mutant")
    for number, mutant in enumerate(mutants(source)):
        story = f"{path}: {mutant.change}"
        if number not in numbers or story in known:
            continue
        if all(survives(name, mutant, check) for check in checks):
            yield f"{story}  (line {mutant.line}, mutant {number})"


@click.command()
@click.option("--module", "chosen", multiple=True, type=click.Choice(list(MODULES)), help="Module; may be repeated.")
@click.option("--first", type=int, default=0, show_default=True, help="Number of the first mutant of each module.")
@click.option("--count", type=int, default=1_000, show_default=True, help="Number of mutants of each module.")
def main(*, chosen: tuple[str, ...], first: int, count: int) -> None:
    """Make mutants, run the tests on each, and list the survivors."""
    os.chdir(ROOT)
    found = 0
    for path in chosen or MODULES:
        total = len(list(mutants((ROOT / path).read_text())))
        numbers = range(first, min(total, first + count))
        for story in survivors(path, numbers):
            found += 1
            click.echo(f"SURVIVED {story}")
        click.echo(f"{path}: {len(numbers)} of {total} mutants")
    click.echo(f"mutation: {found} survivors that are not explained in tests/mutation/accepted.txt")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
