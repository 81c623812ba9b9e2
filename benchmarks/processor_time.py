"""Processor time of one backend or process, from the kernel: what a busy machine changes least."""

from __future__ import annotations

from pathlib import Path


def seconds(pid: int) -> float:
    """Return the processor time of a process; the kernel counts that of each thread in nanoseconds."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9
