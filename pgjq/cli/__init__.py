"""The command line: `pgjq`, one file for each command.

Here is the root of the commands, and the one place where an error of pgjq's becomes a line on stderr and an exit code.
"""

from __future__ import annotations

from typing import Any

import click

from pgjq.cli.demo.command import demo
from pgjq.cli.migrate import migrate
from pgjq.cli.pipeline import pipeline
from pgjq.cli.prune import prune
from pgjq.errors import PgjqError, StorageUnavailableError


class _Commands(click.Group):
    """Commands whose errors are one line that says what to do, unless `--debug` asks for all of it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PgjqError as error:
            if ctx.params["debug"]:
                raise
            raise click.ClickException(_line(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pgjq", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error, and not only its message.")
def main(*, debug: bool) -> None:
    """A job queue for Python on PostgreSQL.

    \b
    Examples:
      pgjq demo                                        see jobs run, and one worker killed on the way
      pgjq migrate --url postgresql://localhost/app    bring a database to this version's schema
      pgjq --debug migrate status                      what is wrong, with the traceback
    """  # noqa: D301  (click's mark for "leave these lines as they are")


main.add_command(demo)
main.add_command(migrate)
main.add_command(pipeline)
main.add_command(prune)


def _line(error: PgjqError) -> str:
    """Put an error on one line, with what to look at where its message cannot know."""
    said = " ".join(str(error).split())
    return f"{said} (look at --url or PGJQ_URL)" if isinstance(error, StorageUnavailableError) else said
