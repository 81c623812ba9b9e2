"""The program of a demo worker; it runs until the demo closes its standard input or dies."""

from __future__ import annotations

import logging
import os
import signal
import sys

from pgjq.cli.demo.arguments import Assignment
from pgjq.cli.demo.queue import make_queue
from pgjq.cli.demo.storage import open_demo_storage
from pgjq.errors import PgjqError


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then stops its workers.
    logging.getLogger("pgjq").setLevel(logging.ERROR)  # The demo kills a worker, and itself reports stalled jobs.
    storage = open_demo_storage(os.environ["PGJQ_URL"])
    try:
        with make_queue(storage, Assignment.read(sys.argv[1:])):
            sys.stdin.read()
    except PgjqError as error:
        sys.exit(f"a worker of the demo gave up: {error}")
    finally:
        storage.close()


if __name__ == "__main__":
    _main()
