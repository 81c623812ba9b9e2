"""The tree of errors is the contract's, and public."""

from __future__ import annotations

import builtins

import pytest

import pgjq
from pgjq import errors

TREE = {
    "ValidationError": ("PgjqError", ValueError),
    "StorageError": ("PgjqError", None),
    "StorageUnavailableError": ("StorageError", None),
    "SchemaError": ("StorageError", None),
    "UnsupportedError": ("PgjqError", None),
    "MissingExtraError": ("PgjqError", ImportError),
    "QueueNotFoundError": ("PgjqError", None),
    "PolicyError": ("PgjqError", None),
    "JobNotFoundError": ("PgjqError", None),
    "JobFailedError": ("PgjqError", None),
    "MaxRetriesError": ("JobFailedError", None),
    "JobCancelledError": ("PgjqError", None),
    "LeaseLostError": ("PgjqError", None),
    "TimeoutError": ("PgjqError", builtins.TimeoutError),
}


@pytest.mark.parametrize("name", TREE)
def test_each_error_is_public_and_has_its_place(name: str) -> None:
    parent, builtin = TREE[name]
    kind = getattr(pgjq, name)
    assert name in pgjq.__all__
    assert kind.__bases__ == tuple(base for base in (getattr(pgjq, parent), builtin) if base is not None)


def test_there_are_no_others() -> None:
    classes = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    made_here = {name for name, kind in classes.items() if kind.__module__ == errors.__name__}
    assert made_here == {"PgjqError", *TREE}


def test_a_failure_brings_its_cause_and_the_last_one_its_payload() -> None:
    cause = pgjq.JobError("ValueError", "boom")
    assert pgjq.JobFailedError("failed", cause).original_error is cause
    last = pgjq.MaxRetriesError("failed", cause, payload={"order": 7}, attempts=3)
    assert (last.original_error, last.payload, last.attempts) == (cause, {"order": 7}, 3)
