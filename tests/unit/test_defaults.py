"""What holds where nothing is said."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

from pgjq import (
    AsyncQueue,
    Client,
    JsonSerde,
    LeaderElection,
    LeasePolicy,
    MemoryStorage,
    Queue,
    Reaper,
    RedisStorage,
    ValidationError,
    Worker,
)

KINDS: list[Any] = [Queue, AsyncQueue]


@pytest.mark.parametrize("kind", KINDS)
def test_a_queues_defaults_are_the_contracts(kind: Any) -> None:
    queue = kind(storage=MemoryStorage())
    assert (queue.name, queue.concurrency, queue.block_timeout, queue.max_attempts) == ("default", 1, 5.0, None)
    assert (queue.result_ttl, queue.grace) == (3600.0, 30.0)
    assert queue.lease_policy == LeasePolicy(lease=30.0, heartbeat=10.0, expire=900.0)
    assert (type(queue.payload_serde), type(queue.result_serde)) == (JsonSerde, JsonSerde)
    assert queue.bus.logger is logging.getLogger("pgjq")


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_has_a_name_of_its_own_or_the_one_it_was_given(kind: Any) -> None:
    storage = MemoryStorage()
    names = {kind(storage=storage).worker_id for _ in range(10)}
    assert len(names) == 10
    assert kind(storage=storage, worker_id="worker-host-1").worker_id == "worker-host-1"


def test_a_reapers_defaults_are_the_contracts() -> None:
    reaper = Reaper(storage=MemoryStorage())
    assert (reaper.lease_policy, reaper.leader_election) == (LeasePolicy(), LeaderElection(enabled=False))
    assert type(reaper.payload_serde) is JsonSerde


@pytest.mark.parametrize("kind", [*KINDS, Reaper])
def test_a_storage_is_required(kind: Any) -> None:
    with pytest.raises(TypeError, match="storage"):
        kind()


@pytest.mark.parametrize("kind", [Queue, AsyncQueue, Client])
def test_an_answer_is_waited_for_half_a_minute(kind: Any) -> None:
    assert inspect.signature(kind.enqueue_and_wait).parameters["timeout"].default == 30.0


def test_a_redis_is_looked_for_on_this_machine() -> None:
    named = inspect.signature(RedisStorage).parameters
    assert (named["url"].default, named["prefix"].default) == ("redis://localhost:6379", "jq")
    assert {named[name].default for name in ("host", "port", "client")} == {None}


def serving(*policies: LeasePolicy | None) -> list[Queue]:
    """Queues of one storage, each with a policy."""
    storage = MemoryStorage()
    queues = [Queue(f"{n}", storage=storage, lease_policy=policy) for n, policy in enumerate(policies)]
    for queue in queues:
        queue.execute(print)
    return queues


def test_a_worker_has_ten_slots_and_a_grace_of_half_a_minute() -> None:
    worker = Worker(*serving(None, None))
    assert (worker.concurrency, worker.processes, worker.grace) == (10, 1, 30.0)
    assert worker.lease_policy == LeasePolicy()


def test_a_worker_goes_by_the_policy_of_its_queues_or_by_its_own() -> None:
    patient, prompt = LeasePolicy.visibility(600), LeasePolicy.visibility(1)
    assert Worker(*serving(patient, patient)).lease_policy == patient
    assert Worker(*serving(patient, prompt), lease_policy=LeasePolicy()).lease_policy == LeasePolicy()
    with pytest.raises(ValidationError, match="different lease policies"):
        Worker(*serving(patient, prompt))
