"""Exit codes and error messages: every error is one line on stderr that says what to do.

All errors of pgjq and click are handled here. Standard output has results only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.formatting import one_line
from pgjq.errors import PgjqError, StorageUnavailableError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterator

NO: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

EXIT_CODES: Final = """\b
Exit codes:
  0    done; also for a job that existed before, and for a worker that was stopped by a signal
  1    not found, not done, failed, or the storage could not be reached
  2    invalid command line
  130  interrupted by Ctrl-C; what was done before stays done"""

_CLICKS: Final = (click.ClickException, click.Abort, click.exceptions.Exit)
_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())  # Click 8.1 shows help by itself.


class Refusal(click.ClickException):
    """The command failed or its result is negative; the text says why."""

    exit_code = NO


class CommandLineError(Refusal):
    """The command line is invalid; the text says why."""

    exit_code = USAGE


class LazyCommands(Mapping[str, click.Command]):
    """Commands by name. A command's module is imported when the command is looked up."""

    def __init__(self, modules: Mapping[str, tuple[str, str]]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> click.Command:
        module, _ = self._modules[name]
        return getattr(import_module(module), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def short_help(self) -> list[tuple[str, str]]:
        """Return the names with a line of help each; imports nothing."""
        return [(name, text) for name, (_, text) in self._modules.items()]


class Commands(click.Group):
    """The root of the commands, in the order of their table."""

    def __init__(self, *args: Any, modules: Mapping[str, tuple[str, str]], **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self.commands: Any = LazyCommands(modules)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        # Not `get`, which would hide a KeyError of the import.
        return self.commands[cmd_name] if cmd_name in self.commands else None  # noqa: SIM401

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(self.commands.short_help())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Refusal as error:
            if ctx.params["debug"] and error.__cause__ is not None:
                raise error.__cause__ from None
            raise
        except PgjqError as error:
            if ctx.params["debug"]:
                raise
            raise _refusal(error) from error
        except Exception as error:
            if ctx.params["debug"] or isinstance(error, (*_CLICKS, BrokenPipeError)):
                raise
            raise Refusal(
                f"{type(error).__name__}: {error}; this is a defect of pgjq; pgjq --debug … shows where"
            ) from error

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except _HELP as error:
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            code = _complain(_with_help(error), error.exit_code)
        except click.Abort as error:
            code = _complain("interrupted", INTERRUPTED) if _was_interrupted(error) else _complain("aborted", NO)
        sys.exit(code if isinstance(code, int) else 0)


def _refusal(error: PgjqError) -> Refusal:
    """Add what to check where the error's own message cannot know it."""
    hint = " (look at --url or PGJQ_URL)" if isinstance(error, StorageUnavailableError) else ""
    return (CommandLineError if isinstance(error, ValidationError) else Refusal)(f"{error}{hint}")


def _complain(message: str, code: int) -> int:
    click.echo(f"Error: {one_line(message)}", err=True)
    return code


def _with_help(error: click.ClickException) -> str:
    message = error.format_message()
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    return f"{message.removesuffix('.')} (see: {error.ctx.command_path} --help)"


def _was_interrupted(error: click.Abort) -> bool:
    return isinstance(error.__cause__ or error.__context__, KeyboardInterrupt)
