"""Report every exception of a task to an error tracker, with the request that enqueued it.

A middleware has two sides. `enqueue` runs in the producer and puts the id of the request into the job's headers; `run`
runs in the worker, around every task, and sends what it raised. Replace `send` by `sentry_sdk.capture_exception`.

    pgjq worker error_reports &
    python error_reports.py
    cat reports.jsonl
"""

from __future__ import annotations

import json
import os
import time
import traceback
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pgjq

if TYPE_CHECKING:
    from collections.abc import Callable

REPORTS = Path(os.environ.get("REPORTS", "reports.jsonl"))
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


class ErrorReports:
    """Carries the request's id from producers to workers, and reports what tasks raise."""

    def enqueue(self, new_job: pgjq.NewJob, call_next: Callable[[pgjq.NewJob], Any]) -> Any:
        """Add the id of the current request to a job."""
        current = request_id.get()
        if current is not None:
            new_job = replace(new_job, headers={**(new_job.headers or {}), "request-id": current})
        return call_next(new_job)

    def run(self, job: pgjq.Job, call_next: Callable[[pgjq.Job], Any]) -> Any:
        """Run a job with the id of its request, and report an exception, which then fails the job as usual."""
        token = request_id.set(job.headers.get("request-id"))
        began = time.monotonic()
        try:
            return call_next(job)
        except Exception as error:
            send(error, task=job.task, job=job.id, attempt=job.attempts, seconds=time.monotonic() - began)
            raise
        finally:
            request_id.reset(token)


def send(error: Exception, **facts: object) -> None:
    """Append a report to a file instead of calling your error tracker."""
    report = {"error": repr(error), "request": request_id.get(), "trace": traceback.format_exc(), **facts}
    with REPORTS.open("a") as file:
        file.write(json.dumps(report) + "\n")


storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)
billing = pgjq.Queue("billing", storage=storage, middleware=[ErrorReports()])


@billing.task(discard_on=(ZeroDivisionError,))
def share(cents: int, among: int) -> int:
    """Divide an amount."""
    return cents // among


if __name__ == "__main__":
    request_id.set(uuid4().hex)  # As the middleware of a web framework does for each request.
    good, bad = share.enqueue(100, 4), share.enqueue(100, 0)
    print(good.result())
    try:
        bad.result()
    except pgjq.JobFailedError as failed:
        print(failed.original_error.message)
    storage.close()
