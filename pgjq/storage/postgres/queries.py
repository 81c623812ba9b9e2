"""SQL statements, read from their files.

Statements are in `sql/`, one per file, valid in psql as they are: the schema is written `pgjq.`, parameters are
written `:name`. In a checkout `sql/` is at the root; in a wheel it is inside the package. `render` replaces `pgjq` by
another schema's name; `Queries` returns the statements in each driver's format.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")
# The schema before a dot, the schema by itself, and its roles.
_OURS: Final = re.compile(
    r"(?<![\w\"])(?:(?P<start>nextval\('|regclass\('|'|)pgjq\.|schema pgjq\b"
    r"|(?P<quote>'?)pgjq_(?P<role>producer|worker|monitor|spark|admin)\b)"
)
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)
# What stands above the definition of an object, up to the first empty comment line.
_HEADER: Final = re.compile(
    r"(?:^|\n)((?:-- .+\n)+)(?:--.*\n)*create (?:or replace )?(function|table|type|view) (pgjq\.\w+)"
)
# Room for ".events" within the 63 bytes of a channel's name.
_SCHEMA_BYTES: Final = 48


def resources(folder: str) -> Path:
    """Return the path of a folder: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[2]
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


def check_schema_name(schema: str) -> str:
    """Return the schema's name, or raise ValidationError."""
    try:
        size = len(schema.encode())
    except (AttributeError, UnicodeEncodeError):
        size = 0
    if not 0 < size <= _SCHEMA_BYTES or any(c < " " for c in schema):
        raise ValidationError(f"schema must be a name of 1 to {_SCHEMA_BYTES} bytes, not {schema!r}")
    return schema


def render(text: str, schema: str) -> str:
    """Replace `pgjq` by the schema's name, also in the names of its roles.

    Handles an identifier, an identifier inside a string that PostgreSQL parses as one, and text.
    """
    if schema == "pgjq":
        return text
    return _OURS.sub(lambda found: _named(found, schema), text.replace("$$", _dollar_quote(schema)))


def _named(found: re.Match[str], schema: str) -> str:
    match found["start"], found["role"]:
        case None, None:
            return f"schema {_identifier(schema)}"
        case None, role:
            return _text(f"{schema}_{role}") if found["quote"] else _identifier(f"{schema}_{role}")
        case "", _:
            return f"{_identifier(schema)}."
        case "'", _:
            return f"{_text(schema)}."
        case start, _:
            return f"{start[:-1]}{_text(_identifier(schema))}."


def _identifier(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _text(name: str) -> str:
    """Return the beginning of a string literal; the text that follows closes it."""
    return "'{}".format(name.replace("'", "''"))


def _dollar_quote(schema: str) -> str:
    tag = ""
    while f"${tag}$" in schema:
        tag += "q"
    return f"${tag}$"


def read(path: str, schema: str = "pgjq") -> str:
    """Return one file below `sql/` for a schema."""
    return render((resources("sql") / path).read_text(encoding="utf-8"), schema)


def comments(text: str) -> str:
    """Return COMMENT ON statements of a file: the first paragraph above each object."""
    return "".join(
        f"comment on {kind} {name} is $${' '.join(header.replace('-- ', '').split()).partition(' Index:')[0]}$$;\n"
        for header, kind, name in _HEADER.findall(text)
    )


class Queries:
    """The statements of `sql/queries`, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = check_schema_name(schema)

    @functools.cache  # noqa: B019  (a handful of these live as long as the process)
    def psycopg(self, name: str) -> bytes:
        """Return a statement with psycopg's `%(name)s` parameters."""
        # The schema is inserted last, so that no part of its name is read as a parameter or a cast.
        text = _PARAMETER.sub(r"%(\1)s", _plain(name).replace("%", "%%"))
        return render(text, self.schema.replace("%", "%%")).encode()

    @functools.cache  # noqa: B019
    def sqlalchemy(self, name: str) -> str:
        """Return a statement for SQLAlchemy's `text`: only the colon of a parameter is not escaped."""
        text = _plain(name).replace("::", "\\:\\:")
        return render(text, self.schema.replace(":", "\\:"))

    @functools.cache  # noqa: B019
    def asyncpg(self, name: str) -> tuple[str, tuple[str, ...]]:
        """Return a statement with asyncpg's `$1` parameters, and their names in that order."""
        text = _plain(name)
        names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        return render(_PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text), self.schema), names

    def written(self, name: str, literals: Mapping[str, str]) -> str:
        """Return a statement with literals in place of its parameters."""
        # Piece by piece: the schema's name must not be read as a parameter, nor a literal as the schema's name.
        pieces = _PARAMETER.split(_plain(name))
        return "".join(
            literals[piece] if number % 2 else render(piece, self.schema) for number, piece in enumerate(pieces)
        )

    def channel(self, topic: str) -> str:
        """Return the name of a NOTIFY channel."""
        return f"{self.schema}.{topic}"


def _plain(name: str) -> str:
    """Return a statement without its header."""
    return _COMMENT.sub("", read(f"queries/{name}.sql", "pgjq")).strip()
