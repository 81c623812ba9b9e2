"""Log output of the worker and the reaper on stderr, as text or as JSON objects.

A module of the user that configures logging keeps its configuration, unless an option of pgjq asks for another. A pgjq
error, such as an unavailable storage, is one line; `--debug` adds the traceback. The library logs the outcomes of jobs
(`pgjq.worker.job_log`); this module formats them.
"""

from __future__ import annotations

import functools
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.formatting import document, escape_lines, one_line, printable
from pgjq.errors import PgjqError
from pgjq.logs import JobContextFilter

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS: Final = ("debug", "info", "warning", "error")
_DEFAULTS: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "pgjq_error"))

logger: Final = logging.getLogger("pgjq")


class _Lines(logging.Formatter):
    """Time, level, message, and the extra fields as name=value."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        message = one_line(record.getMessage()) if record.name == "pgjq" else escape_lines(record.getMessage())
        facts = {name: printable(str(value)) for name, value in _extras(record).items()}
        more = [f"{name}={fact}" for name, fact in facts.items() if f"{name}=" not in message]
        line = " ".join([f"{_local(record)} {record.levelname.lower():<7}", message, *more])
        trace = self.trace(record)
        return f"{line}\n{trace}" if trace else line

    def trace(self, record: logging.LogRecord) -> str | None:
        """Return the traceback, except for an unavailable storage."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or (isinstance(error, PgjqError) and not self._debug):
            return None
        return self.formatException(record.exc_info) if record.exc_info else None


class _Objects(_Lines):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat()
        said = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        trace = self.trace(record)
        return document({**said, "traceback": trace} if trace else said)


def with_log(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--log-level` and `--json`; pass a function that starts the log as first argument."""

    @functools.wraps(command)
    @click.pass_context
    def logged(ctx: click.Context, *args: Any, log_level: str | None, as_json: bool, **options: Any) -> None:
        debug = bool(ctx.find_root().params.get("debug"))
        command(lambda: _begin(log_level, as_json=as_json, debug=debug), *args, **options)

    as_objects = click.option("--json", "as_json", is_flag=True, help="Log one JSON object a line.")
    how_much = click.option("--log-level", type=click.Choice(LEVELS), help="What to log; by default info.")
    return how_much(as_objects(logged))


def begin_quietly(*, debug: bool) -> None:
    """Print warnings of commands without logging options as one line, unless the user logs them."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Lines(debug=debug))


def _begin(level: str | None, *, as_json: bool, debug: bool) -> None:
    root = logging.getLogger()
    if root.handlers and level is None and not as_json:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_Objects(debug=debug) if as_json else _Lines(debug=debug))
    handler.addFilter(JobContextFilter())
    logging.basicConfig(level=(level or "info").upper(), handlers=[handler], force=True)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _DEFAULTS and value is not None}


def _local(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
