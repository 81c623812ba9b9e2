"""The page of errors quotes messages that the code has, and has all of those that the code raises."""

from __future__ import annotations

import ast
import re

import pgjq.errors
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "errors.md"
# Messages of which the code has only parts: what it raises, and what the page says for it.
COMPOSED = {
    "…; the schema is missing or incomplete: …": {'…; the schema is missing or incomplete: run "pgjq migrate" …'},
    "…: …": {"…: this login may not do that; which role may is in docs/roles.md"},
    "this is … connection: use it with …": {
        "this is an async connection: use it with …",
        "this is a blocking connection: use it with …",
    },
    "…, not …; …": {"connection must be a psycopg Connection or …, not …; …"},
    "… is not callable: …": {"… is not callable: a handler is a function of (job), …"},
    "… takes … arguments: …": {"… takes … arguments: a handler is a function of (job), …"},
    "…: stop this worker and start it again": {
        "the supervisor of the worker processes (process …) has ended, and its workers stop: …"
    },
    "argument … of task … …": {
        "argument … of task … cannot be serialised by …",
        "argument … of task … cannot be written as data: …",
        "argument … of task … cannot be converted to …: …",
    },
    "the … of … …: …": {"the … of job … is not JSON: …", "the … of job … cannot be stored: …"},
    "… must be …, not …": {"onBadRow must be … or …, not …"},
}

# The message of a MissingExtraError is made in one place.
ERRORS = {name for name, value in vars(pgjq.errors).items() if isinstance(value, type)} - {"MissingExtraError"}
# Their messages say what to do in place.
ELSEWHERE = {"cli", "web", "testing", "doctor"}


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
    assert unknown <= set().union(*COMPOSED.values())


def raised() -> dict[str, str]:
    """Return the messages of the errors that the package raises, with … for what is put into them, and their places."""
    found: dict[str, str] = {}
    for file in sorted((ROOT / "pgjq").rglob("*.py")):
        if file.relative_to(ROOT / "pgjq").parts[0] in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            is_error = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS
            if is_error and node.args and (text := shown(node.args[0])):  # type: ignore[union-attr]
                found[text] = f"{file.relative_to(ROOT)}:{node.lineno}"  # type: ignore[union-attr]
    return found


def shown(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_the_page_has_every_message_that_the_code_raises() -> None:
    known = [
        [part.strip(" ;:,") for part in message.split("…") if len(part.strip(" ;:,")) > 3] for message in messages()
    ]
    everything = raised()
    missing = {
        text: place
        for text, place in everything.items()
        if text not in COMPOSED and not any(parts and all(part in text for part in parts) for parts in known)
    }
    assert missing == {}
    assert COMPOSED.keys() <= everything.keys()
    assert set().union(*COMPOSED.values()) <= set(messages())
