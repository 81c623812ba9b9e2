"""`pgjq metrics`: serve a storage's metrics to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pgjq.cli.log_output import logger, with_log
from pgjq.cli.open_storage import kind_of, with_storage
from pgjq.cli.param_types import DURATION, PORT
from pgjq.cli.run_until_signal import check_storage
from pgjq.probes import ProbeServer, metrics_page
from pgjq.prometheus import Collector
from pgjq.worker.shutdown import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage


@click.command()
@click.option("--port", type=PORT, default=9108, show_default=True, help="Port to serve on; 0: any free one.")
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to serve on.")  # noqa: S104
@click.option("--max-age", type=DURATION, default=10.0, show_default=True, help="How long a reading is kept.")
@click.option("--max-queues", type=int, default=100, show_default=True, help='Further queues are counted as "other".')
@click.option("--max-tasks", type=int, default=100, show_default=True, help='Further tasks are counted as "other".')
@with_log
@with_storage
def metrics(
    storage: Storage,
    begin_log: Callable[[], None],
    *,
    port: int,
    host: str,
    max_age: float,
    max_queues: int,
    max_tasks: int,
) -> None:
    """Serve metrics of all queues to Prometheus, on /metrics, until SIGTERM or Ctrl-C.

    One of these serves all workers: it reads the storage. The login needs the role pgjq_monitor. Workers measure run
    times and waits: pgjq worker --metrics-port.

    \b
    Examples:
      pgjq metrics
      pgjq metrics --port 9108 --host 127.0.0.1
    """  # noqa: D301
    begin_log()
    collector = Collector(storage, max_age=max_age, max_queues=max_queues, max_tasks=max_tasks)
    check_storage(storage)
    asked = StopRequest()
    server = ProbeServer(host, port, {"/metrics": lambda: metrics_page(collector)})
    logger.info("metrics of %s on port %d", kind_of(storage), server.port)
    asked.wait()
    server.close()
    logger.info("stopped")
