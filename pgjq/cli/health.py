"""`pgjq health`: ask a worker on this machine for its probe, for exec probes of containers.

It imports nothing of pgjq's storages, so that it takes a fraction of a second.
"""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from typing import Final

import click

from pgjq.cli.command_group import Refusal

OK: Final = 200


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="The worker's --health-port."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the worker.")
@click.option("--live", is_flag=True, help="Check whether the process lives, not whether it takes jobs.")
@click.option("--timeout", type=float, default=5.0, show_default=True, help="Seconds that the answer may take.")
def health(*, port: int, host: str, live: bool, timeout: float) -> None:
    """Check the probe of a worker that runs with --health-port.

    The exit code is 0 if the worker takes jobs, else 1; standard error says why.

    \b
    Examples:
      pgjq health --port 8080
      pgjq health --port 8080 --live
    """  # noqa: D301
    path = "/live" if live else "/ready"
    connection = HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        raise Refusal(f"no worker answers on {host}:{port}: {error}") from error
    finally:
        connection.close()
    if answer.status != OK:
        raise Refusal(f"{path} answers {answer.status}: {text}")
    click.echo(text)
