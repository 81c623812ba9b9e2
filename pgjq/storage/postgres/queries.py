"""The SQL, read from its files.

Statements live in `sql/`, one per file, valid in psql as they stand: the schema is written `pgjq.`, parameters are
written `:name`. In a checkout `sql/` is at the root; in a wheel it is inside the package. `render` puts another
schema's name in place of `pgjq`; `Queries` gives the statements as psycopg wants them.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

from pgjq.errors import ValidationError

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)
# Room for ".events" within the 63 bytes of a channel's name.
_SCHEMA_BYTES: Final = 48


def resources(folder: str) -> Path:
    """Find a folder that the wheel carries inside the package and a checkout has beside it."""
    package = Path(__file__).parents[2]
    inside = package / folder
    return inside if inside.is_dir() else package.parent / folder


def check_schema_name(schema: str) -> str:
    """Return the schema's name if it can be used."""
    if not schema or {"\0", ":"} & set(schema) or len(schema.encode()) > _SCHEMA_BYTES:
        raise ValidationError(f"schema must be a name of 1 to {_SCHEMA_BYTES} bytes without a colon, not {schema!r}")
    return schema


def render(text: str, schema: str) -> str:
    """Put the schema's name in place of `pgjq`, where it stands before a dot, as a name or at the start of a string."""
    if schema == "pgjq":
        return text
    literal = schema.replace("'", "''")
    name = '"{}"'.format(schema.replace('"', '""'))
    # nextval reads its argument as SQL reads a name: unquoted, "Jobs" would be the sequence of another schema, jobs.
    text = text.replace("nextval('pgjq.", "nextval('{}\0".format(name.replace("'", "''")))
    text = text.replace("'pgjq.", f"'{literal}\0")
    text = re.sub(r'(?<![\w"])pgjq\.', lambda _: f"{name}.", text)
    return text.replace("\0", ".")


def read(path: str, schema: str) -> str:
    """Read one file below `sql/`."""
    return render((resources("sql") / path).read_text(encoding="utf-8"), schema)


class Queries:
    """The statements of `sql/queries`, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = check_schema_name(schema)

    @functools.cache  # noqa: B019  (a handful of these live as long as the process)
    def text(self, name: str) -> str:
        """Return a statement with its `:name` parameters, without the comments for people."""
        return _COMMENT.sub("", read(f"queries/{name}.sql", self.schema)).strip()

    @functools.cache  # noqa: B019
    def psycopg(self, name: str) -> bytes:
        """Return a statement with psycopg's `%(name)s` parameters; one without any is to be run without any."""
        text = self.text(name)
        if _PARAMETER.search(text):
            text = _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))
        return text.encode()

    def channel(self, topic: str) -> str:
        """Return the name of a NOTIFY channel."""
        return f"{self.schema}.{topic}"
