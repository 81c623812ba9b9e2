"""The pages that people read, cut into the blocks of code in them.

A block that is not run says why, in a comment right above it: `<!-- not run: it needs a cluster -->`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r'^( *)```(\w*)(?: title="([^"]*)")?\s*$')
EXCUSE = re.compile(r"<!-- not run: (.+) -->")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where its first line is, its language and title, and why it is not run, if it is not."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str
    excuse: str | None


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[Block]:
    """Cut the blocks of some languages out of a page, in their order."""
    found: list[Block] = []
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if opening is None:
            continue
        end = lines.index(f"{opening[1]}```", number)
        excuse = EXCUSE.search(lines[number - 2]) if number > 1 else None
        text = dedent("\n".join(lines[number:end])) + "\n"
        found.append(Block(page, number + 1, opening[2], opening[3], text, excuse and excuse[1]))
        number = end + 1
    return [block for block in found if block.language in languages]
