"""Confirmation before data is deleted."""

from __future__ import annotations

import click

from pgjq.cli.command_group import Refusal


def confirm(question: str, *, yes: bool) -> None:
    """Continue only after a yes, from the option or from the prompt."""
    if not yes and not _ask(question):
        raise Refusal("nothing was changed; --yes goes ahead without asking")


def _ask(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort as error:
        click.echo(err=True)  # The missing reply would have ended the line.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        return False
