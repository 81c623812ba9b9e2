"""HTTP for platforms: probes of a worker process and metrics, on threads of their own.

* `/live` is 200 while every background thread runs and the event loop answers. It never asks the storage: a restart
  does not help against an unavailable one.
* `/ready` is 200 while the worker claims, and the storage answered within the last two heartbeat intervals.
* `/metrics` is what Prometheus scrapes.

The body says what is wrong. Each of several processes takes the first free port from the given one on.
"""

from __future__ import annotations

import errno
import logging
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from pgjq.background import BackgroundThread, health
from pgjq.errors import MissingExtraError, PgjqError
from pgjq.prometheus import WorkerCollector, check_installed, exposition
from pgjq.worker.measurements import Measurements

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgjq.queue import Worker
    from pgjq.worker.engine_runner import Service

ANSWER_SECONDS: Final = 2.0  # In which the event loop must answer.
REQUEST_SECONDS: Final = 5.0  # In which a client must send its request.
TEXT: Final = "text/plain; charset=utf-8"

logger: Final = logging.getLogger("pgjq")


class Page(NamedTuple):
    """An answer to a GET."""

    status: int
    body: bytes
    content_type: str = TEXT


class ProbeServer:
    """Serves pages on a port, or on the first free one of several."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Callable[[], Page]], *, tries: int = 1) -> None:
        handler = type("PageHandler", (_Handler,), {"pages": pages})
        self._server = _bind(host, range(port, port + tries if port else 1), handler)
        self.port: int = self._server.server_address[1]
        self._thread = BackgroundThread("pgjq probes", self._server.serve_forever)
        self._thread.start()
        logger.info("serving %s", ", ".join(pages), extra={"host": host, "port": self.port})

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    pages: ClassVar[Mapping[str, Callable[[], Page]]]
    timeout = REQUEST_SECONDS
    server_version = "pgjq"
    sys_version = ""

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        try:
            answer = Page(404, f"the pages are {', '.join(self.pages)}\n".encode()) if page is None else page()
        except Exception as error:
            logger.error("probe failed", exc_info=error, extra={"path": self.path})  # noqa: TRY400
            answer = Page(500, f"{type(error).__name__}: {error}\n".encode())
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: probes and scrapes come every few seconds."""


def _bind(host: str, ports: range, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    for port in ports:
        try:
            return _Server((host, port), handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == ports[-1]:
                raise PgjqError(f"cannot serve probes on {host}:{port}: {error.strerror}") from error
    raise PgjqError("no port to serve probes on")


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def metrics_page(*collectors: Any) -> Page:
    """Return the metrics of collectors."""
    try:
        content_type, text = exposition(*collectors)
    except MissingExtraError as error:
        return Page(501, f"{error}\n".encode())
    return Page(200, text, content_type)


def live_page(service: Service) -> Page:
    """Return whether the process should go on living."""
    now = time.monotonic()
    ill = [f"thread {each.name} has ended" for each in health() if not each.alive]
    ill += [f"thread {each.name} hangs" for each in health() if each.alive and each.due < now]
    if not service.answers(ANSWER_SECONDS):
        ill.append("the event loop does not answer: a handler blocks it")
    return _judged(ill)


def ready_page(service: Service) -> Page:
    """Return whether the worker takes jobs."""
    return _judged(service.obstacles())


def serve_worker(worker: Worker, *, health_port: int | None, metrics_port: int | None, host: str) -> None:
    """Have a worker serve probes and metrics in each process; call it before the worker starts.

    Without the extra `prometheus`, only a `metrics_port` is an error.
    """
    if metrics_port is not None:
        check_installed()
    measurements = worker.measurements = worker.measurements or Measurements()
    collector = WorkerCollector(measurements)

    def start(service: Service) -> Callable[[], None]:
        pages = {
            "/live": lambda: live_page(service),
            "/ready": lambda: ready_page(service),
            "/metrics": lambda: metrics_page(collector),
        }
        servers: list[ProbeServer] = []
        if health_port is not None:
            servers.append(ProbeServer(host, health_port, pages, tries=worker.processes))
        if metrics_port is not None and metrics_port != health_port:
            only = {"/metrics": pages["/metrics"]}
            servers.append(ProbeServer(host, metrics_port, only, tries=worker.processes))

        def end() -> None:
            for server in servers:
                server.close()

        return end

    worker.accompany(start)


def _judged(ill: list[str]) -> Page:
    return Page(503, "".join(f"{each}\n" for each in ill).encode()) if ill else Page(200, b"ok\n")
