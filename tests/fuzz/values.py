"""Hostile values: what callers, files, networks and other programs may hand to pgjq."""

from __future__ import annotations

import string
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

ODD_TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "x\udfffy", "\u202e", "\ufeff", "é", "e\u0301", "☃" * 300, "%", "%s", "%(a)s", "'",
    '"', "\\", "$$", "; drop table pgjq.job; --", "../../etc/passwd", "{0.__class__}", "a:b", "*", "null", "NaN",
    "Infinity", "-1", "1e999", "\n", "\r\n", "pgjq.", "default", "a" * 255, "a" * 256, "a" * 10_000, "{", "[1",
    "\x1b[2J",
)  # fmt: skip
ODD_NUMBERS = (
    0, -1, 1, 2, 32767, 32768, -32768, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 0.0, -0.0, 5e-324,
    1e308, float("inf"), float("-inf"), float("nan"), True,
)  # fmt: skip
ODD_TIMES = (
    datetime(1, 1, 1),  # noqa: DTZ001
    datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), timedelta.min,
    timedelta.max, timedelta(0),
)  # fmt: skip

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=40))
numbers = st.one_of(st.sampled_from(ODD_NUMBERS), st.integers(), st.floats())
scalars = st.one_of(texts, numbers, st.sampled_from(ODD_TIMES), st.none(), st.booleans(), st.binary(max_size=20))
anything: st.SearchStrategy[Any] = st.one_of(
    scalars,
    st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4), st.tuples(inner)
        ),
        max_leaves=8,
    ),
    st.sampled_from((object(), {1, 2}, b"\xff", type, NotImplemented, ...)),
)
OPTIONS = (
    "max_attempts", "result_ttl", "priority", "run_at", "delay", "singleton_key", "on_failed", "headers", "retry_limit",
    "retry_delay", "retry_backoff", "retry_delay_max", "expire_in_seconds", "heartbeat_seconds", "retention_seconds",
    "delete_after_seconds", "dead_letter",
)  # fmt: skip
job_options = st.dictionaries(st.sampled_from(OPTIONS), anything, max_size=3)
QUEUE_OPTIONS = (
    "policy", "partition", "dead_letter", "warning_queue_size", "retry_limit", "retry_delay", "retry_backoff",
    "retry_delay_max", "heartbeat_seconds", "expire_in_seconds", "retention_seconds", "delete_after_seconds",
)  # fmt: skip
queue_options = st.dictionaries(st.sampled_from(QUEUE_OPTIONS), anything, max_size=3)
SCHEDULE_OPTIONS = (
    "cron",
    "every",
    "timezone",
    "start_at",
    "end_at",
    "missed",
    "overlap",
    "jitter",
    "starting_deadline",
)
crons = st.one_of(
    texts, st.lists(st.text("0123456789*/-,L#?@", min_size=1, max_size=6), min_size=5, max_size=6).map(" ".join)
)
schedule_options = st.dictionaries(st.sampled_from(SCHEDULE_OPTIONS), st.one_of(anything, crons), max_size=3)
urls = st.one_of(
    texts,
    st.tuples(
        st.sampled_from(
            (
                "postgresql",
                "postgres",
                "postgresql+psycopg",
                "redis",
                "rediss",
                "unix",
                "file",
                "memory",
                "embedded",
                "x",
            )
        ),
        st.sampled_from(("://", ":", ":/", ":///", "")),
        st.text(string.printable, max_size=40),
    ).map("".join),
)
arguments = st.lists(
    st.one_of(
        texts,
        st.sampled_from(
            (
                "enqueue", "status", "queues", "jobs", "cancel", "retry", "delete", "schedules", "create", "pause",
                "stats", "workers", "migrate", "doctor", "--json", "--help", "--url", "--queue", "--id", "--delay",
                "--priority", "--limit", "--cron", "--every", "-1", "mail", "list", "tasks", "scale", "--target",
            )
        ),
    ),
    max_size=6,
)  # fmt: skip
