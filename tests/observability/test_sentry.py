"""The recipe of docs/observability.md, with a transport that keeps what it should send."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

import pgjq

PAGE = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()


class Kept(Transport):
    """Keeps events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.events.append(envelope.get_event())


def test_the_last_failure_is_reported_with_its_job() -> None:
    (recipe,) = re.findall(r"```python\n(import sentry_sdk\n.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"pgjq": pgjq}
    exec(recipe, names)  # noqa: S102
    kept = Kept()
    sentry_sdk.init("https://key@sentry.invalid/1", transport=kept, default_integrations=False)
    queue = names["payments"]

    @queue.task(max_attempts=2, retry_delay=0, retry_backoff=False)
    def charge() -> None:
        raise ConnectionError("the bank does not answer")

    try:
        with queue:
            handle = charge.enqueue()
            with pytest.raises(pgjq.JobFailedError):
                handle.result(timeout=30)
    finally:
        sentry_sdk.get_client().close()
        sentry_sdk.get_global_scope().set_client(None)
    (event,) = kept.events
    assert event["exception"]["values"][-1]["value"] == "the bank does not answer"
    assert event["transaction"] == "charge"
    expected = {"queue": "payments", "task": "charge", "job_id": handle.id, "attempt": 2}
    assert {name: event["tags"][name] for name in expected} == expected
