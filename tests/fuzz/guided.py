"""Coverage-guided fuzzing of what reads bytes, with atheris: `python -m tests.fuzz.guided journal -runs=100000`.

atheris is not among the development dependencies: it has wheels for few platforms (`pip install atheris`). Arguments
behind the name of a target are libFuzzer's.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from itertools import count
from pathlib import Path
from shutil import rmtree
from zlib import crc32

import atheris

with atheris.instrument_imports(include=["pgjq"]):
    from pgjq import Client, FileStorage
    from tests.fuzz import entry_points as points

FOLDERS = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").exists() else None))
NUMBERS = count()


def journal(data: bytes) -> None:
    """Open a directory with damaged lines, half of them with a right checksum."""
    lines = [b"%08x %s\n" % (crc32(line), line) if n % 2 else line + b"\n" for n, line in enumerate(data.split(b"\n"))]
    folder = FOLDERS / str(next(NUMBERS))
    points.read_journal(folder, lines)
    rmtree(folder, ignore_errors=True)


def line(data: bytes) -> None:
    """Read one line of a journal, with a right checksum."""
    points.decode(data)
    points.decode(b"%08x %s" % (crc32(data), data))


def resp(data: bytes) -> None:
    """Read what a Redis might send, in pieces."""
    points.read_replies([data[n : n + 7] for n in range(0, len(data), 7)])


def corpus(directory: Path) -> None:
    """Write journals of real operations and real replies, for the fuzzer to begin with."""
    directory.mkdir()
    with contextlib.closing(FileStorage(FOLDERS / "real")) as storage:
        client = Client(storage)
        client.create_queue("keyed", policy="key_strict_fifo")
        client.create_schedule("hourly", "mail", {"n": 1}, every=3600)
        client.enqueue("keyed", "one", [1], singleton_key="k", headers={"a": "b"})
        client.enqueue_many("mail", [(str(n), n) for n in range(3)])
        client.cancel("mail", "1")
    bodies = [line.partition(b" ")[2] for line in (FOLDERS / "real" / "journal").read_bytes().splitlines()]
    for number, body in enumerate(bodies):
        (directory / str(number)).write_bytes(b"\n" + body)
    (directory / "all").write_bytes(b"\n" + b"\n\n".join(bodies))
    (directory / "replies").write_bytes(b"*2\r\n$3\r\nfoo\r\n:7\r\n-ERR no\r\n$-1\r\n+OK\r\n*1\r\n*0\r\n")


TARGETS = {"journal": journal, "line": line, "resp": resp}


def main() -> None:
    """Run one target until libFuzzer ends."""
    target = TARGETS[sys.argv.pop(1)]
    corpus(FOLDERS / "corpus")
    logging.disable()
    atheris.Setup([*sys.argv, str(FOLDERS / "corpus")], target)
    with contextlib.suppress(KeyboardInterrupt):
        atheris.Fuzz()


if __name__ == "__main__":
    main()
