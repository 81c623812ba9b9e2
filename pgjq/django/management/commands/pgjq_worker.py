"""`manage.py pgjq_worker`: run tasks until SIGTERM or Ctrl-C.

The first signal drains: nothing more is claimed, and running tasks have the grace to end; a second one exits at once.
With autoreload, Django's reloader starts the worker again after a change of the code; running tasks are given back.
"""

# pyright: basic

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import autoreload

from pgjq.django.backend import PgjqBackend
from pgjq.django.storages import worker_storage
from pgjq.django.task_queue import DjangoQueue
from pgjq.django.tasks_framework import task_backends
from pgjq.errors import PgjqError
from pgjq.probes import serve_worker
from pgjq.queue import Worker
from pgjq.worker.shutdown import SIGNALS, StopRequest

if TYPE_CHECKING:
    from pgjq.storage.base import Storage


class Command(BaseCommand):
    """Runs the tasks of a backend."""

    help = "Run the tasks of a pgjq backend until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: Any) -> None:
        """Add the options."""
        add = parser.add_argument
        add("--backend", default="default", help="Backend in TASKS (default: default).")
        add("--queue", action="append", dest="queues", help="Serve only this queue; may be given several times.")
        add("--concurrency", type=int, default=10, help="Tasks at a time in each process (default: 10).")
        add("--processes", type=int, default=1, help="Number of processes; those that die are replaced.")
        add("--grace", type=float, default=30.0, help="Seconds that running tasks have to end (default: 30).")
        add("--strict", action="store_true", help="Serve a queue only while those named before it have nothing to run.")
        add("--max-jobs", type=int, help="Replace a process after so many tasks.")
        add("--max-memory", type=int, help="Replace a process that uses more bytes of memory, when its tasks ended.")
        add("--drain", action="store_true", help="Work until nothing is due, then exit.")
        add("--health-port", type=int, help="Serve /live, /ready and /metrics on this port.")
        add("--metrics-port", type=int, help="Serve /metrics on this port.")
        add("--probe-host", default="0.0.0.0", help="Address for both (default: 0.0.0.0).")  # noqa: S104
        add("--reload", action="store_true", default=None, help="Start again when the code changes (default: DEBUG).")
        add("--no-reload", action="store_false", dest="reload", help="Do not watch the code.")

    def handle(self, **options: Any) -> None:
        """Run."""
        reload = settings.DEBUG if options["reload"] is None else options["reload"]
        try:
            if reload and not options["drain"]:
                self._run_with_reloader(options)
            else:
                self._run(options)
        except PgjqError as error:
            raise CommandError(str(error)) from error

    def _run(self, options: Any) -> None:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            self._run_until_signal(options, StopRequest())
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run_until_signal(self, options: Any, asked: StopRequest) -> None:
        with _Service(options) as service:
            self.stdout.write(f"worker serves {service.names}: {options['concurrency']} at a time")
            service.worker.wait(asked)
            over = service.worker.finished
            self.stdout.write("nothing is due" if over else f"stopping: running tasks have {options['grace']:g} s")
        self.stdout.write("stopped")

    def _run_with_reloader(self, options: Any) -> None:
        """Run Django's reloader in the main thread; SystemExit ends it after a change or SIGTERM."""
        started: list[_Service] = []

        def serve() -> None:
            started.append(service := _Service(options))
            service.__enter__()
            self.stdout.write(f"worker serves {service.names}, and starts again when the code changes")

        try:
            autoreload.run_with_reloader(serve)
        finally:
            for service in started:
                service.__exit__(None, None, None)


class _Service:
    """The worker, its queues and its storage."""

    def __init__(self, options: Any) -> None:
        backend = task_backends[options["backend"]]
        if not isinstance(backend, PgjqBackend):
            raise CommandError(f"TASKS[{options['backend']!r}] is not a backend of pgjq")
        names = options["queues"] or sorted(backend.queues)
        if not names:
            raise CommandError("TASKS allows any queue (QUEUES is empty): name those to serve with --queue")
        self.names = ", ".join(names)
        self._storage: Storage = worker_storage(backend.settings)
        queues = [DjangoQueue(backend, name, self._storage) for name in names]
        keys = ("concurrency", "processes", "grace", "strict", "max_jobs", "max_memory", "drain")
        self.worker = Worker(*queues, **{key: options[key] for key in keys})
        if options["health_port"] is not None or options["metrics_port"] is not None:
            ports = {"health_port": options["health_port"], "metrics_port": options["metrics_port"]}
            serve_worker(self.worker, **ports, host=options["probe_host"])

    def __enter__(self) -> Self:
        connections.close_all()  # Processes must not inherit them.
        self._check()
        self.worker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.worker.stop()
        self._storage.close()

    def _check(self) -> None:
        """Connect once: a wrong address or a missing schema is an error, not endless log lines."""
        from pgjq.blocking import drive

        ops = self._storage.dedicated()
        try:
            drive(ops.next_deadline())
        finally:
            drive(ops.close())
