"""`pgjq web`: serve the web page."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import click

from pgjq.blocking import drive
from pgjq.cli.open_storage import with_storage
from pgjq.errors import MissingExtraError
from pgjq.web import create_app

if TYPE_CHECKING:
    from types import FrameType

    from pgjq.storage.base import Storage

STOP_SECONDS = 2


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8008, show_default=True, help="Port to listen on.")
@click.option(
    "--token", envvar="PGJQ_WEB_TOKEN", show_envvar=True, help="Token that people log in with; by default a new one."
)
@click.option("--read-only", is_flag=True, help="Refuse every action, for everyone.")
@click.option("--hide-payloads", is_flag=True, help="Show no payloads, results and checkpoints.")
@with_storage
def web(storage: Storage, *, host: str, port: int, token: str | None, read_only: bool, hide_payloads: bool) -> None:
    """Serve a page that shows queues, jobs, failures and workers, until SIGTERM or Ctrl-C.

    The token that people log in with is printed, unless --token or PGJQ_WEB_TOKEN gives it. Without it, requests from
    this machine may look, but see no payloads and cannot act.

    \b
    Examples:
      pgjq web
      pgjq web --port 9000 --read-only --hide-payloads
      PGJQ_WEB_TOKEN=… pgjq web --host 0.0.0.0
    """  # noqa: D301
    secret = token or secrets.token_urlsafe(24)  # An empty PGJQ_WEB_TOKEN is none.
    app = create_app(storage, auth=secret, read_only=read_only, hide_payloads=hide_payloads)
    drive(storage.operations("sync").queue_names())  # A wrong address or missing schema is an error at once.
    _serve(app, host, port, None if token else secret)


def _serve(app: Any, host: str, port: int, printed: str | None) -> None:
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("web", "pgjq web") from error
    # No log of requests: a token in an address would be in it.
    settings = uvicorn.Config(
        app, host, port, log_level="warning", access_log=False, timeout_graceful_shutdown=STOP_SECONDS, ws="none"
    )
    listening = settings.bind_socket()
    listening.listen(settings.backlog)  # The printed address works at once.
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
    click.echo(f"pgjq web: {address}{f'?token={printed}' if printed else ' (with your token)'}")

    class Server(uvicorn.Server):
        """Ends the streams of events, which do not end by themselves, when it is asked to stop."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.stopping = True
            super().handle_exit(sig, frame)

    Server(settings).run(sockets=[listening])
