"""The page of errors quotes messages that the code has."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "errors.md"
# Messages that are put together from several literals.
COMPOSED = {
    '…; the schema is missing or incomplete: run "pgjq migrate" …',
    "this is an async connection: use it with …",
    "this is a blocking connection: use it with …",
    "… is not callable: a handler is a function of (job), …",
    "… takes … arguments: a handler is a function of (job), …",
}


def literals() -> str:
    """Return every string of the package and of its SQL, with … for what is put into it."""
    found: list[str] = []
    for file in (ROOT / "pgjq").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.append("…".join(v.value if isinstance(v, ast.Constant) else "" for v in node.values))
                found.append("".join(v.value if isinstance(v, ast.Constant) else "\x01" for v in node.values))
    statements = (file.read_text(encoding="utf-8") for file in (ROOT / "sql").rglob("*.sql"))
    return "\n".join([*found, *(re.sub(r"'\s*\n\s*'", "", text).replace("''", "'") for text in statements)])


def messages() -> list[str]:
    rows = [line.split(" | ")[0] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    return [text for text in quoted if not re.fullmatch(r"[A-Z]\w+Error", text)]


def test_the_code_has_every_message_on_the_page() -> None:
    there = literals()
    unknown = {
        message
        for message in messages()
        if any(len(part.strip()) > 3 and part.strip(" ;:,") not in there for part in message.split("…"))
    }
    assert unknown == COMPOSED
