"""Queues from the command line."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pgjq
from tests.cli.run_command import answer, complaint, run

if TYPE_CHECKING:
    import pytest


def test_a_queue_is_created_changed_and_shown_with_the_values_in_force(database: str) -> None:
    answer("queues", "create", "dead", url=database)
    options = ["--policy", "singleton", "--retry-limit", "5", "--retry-delay", "30s", "--retry-backoff"]
    made = answer("queues", "create", "orders", *options, "--dead-letter", "dead", url=database)
    assert (made["policy"], made["retry_limit"], made["retry_delay"]) == ("singleton", 5, 30.0)
    assert (made["retry_backoff"], made["dead_letter"], made["expire_in_seconds"]) == (True, "dead", 900.0)
    changes = ["--no-retry-backoff", "--expire-in-seconds", "2h", "--unset", "retry_limit", "--unset", "dead_letter"]
    changed = answer("queues", "update", "orders", *changes, url=database)
    assert (changed["retry_backoff"], changed["expire_in_seconds"]) == (False, 7200.0)
    assert (changed["retry_limit"], changed["dead_letter"]) == (2, None)
    assert answer("queues", "show", "orders", url=database) == changed
    shown = dict(line.split(maxsplit=1) for line in run("queues", "show", "orders", url=database).stdout.splitlines())
    assert (shown["policy"], shown["expire_in_seconds"], shown["retry_backoff"]) == ("singleton", "2h", "no")


def test_queues_are_listed_and_counted(database: str) -> None:
    answer("queues", "create", "orders", url=database)
    answer("enqueue", "mail", "1", url=database)
    answer("enqueue", "mail", "1", "--delay", "1h", url=database)
    assert [queue["name"] for queue in answer("queues", "list", url=database)] == ["mail", "orders"]
    assert [line.split()[0] for line in run("queues", "list", url=database).stdout.splitlines()[1:]] == [
        "mail",
        "orders",
    ]
    mail, orders = answer("queues", "stats", url=database)
    assert (mail["queued"], mail["ready"], mail["deferred"], orders["total"]) == (2, 1, 1, 0)
    (only,) = answer("queues", "stats", "orders", url=database)
    assert only == orders


def test_a_paused_queue_is_passed_over_until_it_is_resumed(database: str) -> None:
    answer("enqueue", "mail", "1", url=database)
    assert answer("queues", "pause", "mail", url=database) == {"queue": "mail", "paused": True}
    assert answer("queues", "show", "mail", url=database)["paused"] is True
    assert answer("queues", "resume", "mail", url=database) == {"queue": "mail", "paused": False}
    assert answer("queues", "show", "mail", url=database)["paused"] is False


def test_deleting_a_queue_asks_first_and_says_how_many_jobs_go_with_it(database: str) -> None:
    answer("enqueue", "mail", "1", url=database)
    refused = run("queues", "delete", "mail", url=database, typed="\n")
    assert refused.exit_code == 1
    assert "Delete queue mail and its 1 job, 0 of them running? [y/N]" in refused.stderr
    assert answer("queues", "show", "mail", url=database)["name"] == "mail"
    assert run("queues", "delete", "mail", url=database, typed="y\n").stdout == "deleted queue mail\n"
    assert "there is no queue 'mail'" in complaint("queues", "delete", "mail", url=database)


def test_blocked_keys_are_listed_and_dead_letters_sent_back(database: str, postgres: pgjq.PostgresStorage) -> None:
    answer("queues", "create", "dead", url=database)
    answer("queues", "create", "orders", "--policy", "key_strict_fifo", "--dead-letter", "dead", url=database)
    queue = pgjq.Queue("orders", storage=postgres)

    @queue.execute
    def fail(_job: pgjq.Job) -> None:
        raise pgjq.Discard("no")

    with queue, suppress(pgjq.JobFailedError):
        queue.enqueue_and_wait("a", 1, singleton_key="customer-7", timeout=60)
    assert answer("queues", "blocked", "orders", url=database) == ["customer-7"]
    assert answer("queues", "redrive", "dead", url=database) == {"queue": "dead", "jobs": 1}
    assert answer("queues", "blocked", "orders", url=database) == []


def test_workers_are_listed(database: str, postgres: pgjq.PostgresStorage) -> None:
    queue = pgjq.Queue("mail", storage=postgres, worker_id="ann")
    queue.execute(lambda job: job.payload)
    with queue:
        queue.enqueue_and_wait("a", 1, timeout=60)
        (worker,) = answer("workers", url=database)
        assert (worker["id"], worker["queues"]) == ("ann", ["mail"])
        assert run("workers", url=database).stdout.splitlines()[1].split()[:2] == ["ann", "mail"]


def test_a_storage_without_definitions_still_counts(redis_url: str, redis_storage: pgjq.RedisStorage) -> None:
    assert redis_storage.capabilities.definitions is False
    answer("enqueue", "mail", "1", url=redis_url)
    (stats,) = answer("queues", "stats", "mail", url=redis_url)
    assert stats["queued"] == 1
    assert "has no definitions of queues" in complaint("queues", "list", url=redis_url)


def test_settings_that_contradict_each_other_are_refused(database: str) -> None:
    both = ["--retry-limit", "1", "--unset", "retry_limit"]
    assert "retry_limit" in complaint("queues", "update", "mail", *both, url=database, code=2)
    assert "say what to change" in complaint("queues", "update", "mail", url=database, code=2)
    answer("queues", "create", "mail", url=database)
    said = complaint("queues", "create", "mail", "--policy", "short", url=database)
    assert "policy" in said


def test_without_a_url_it_is_the_embedded_server_in_the_users_directory(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    result = run("enqueue", "mail", "1", url=None)
    assert (result.exit_code, result.stdout[:11]) == (0, "queued job ")
    assert result.stderr.startswith(f"no --url and no PGJQ_URL: the embedded PostgreSQL in {home}")
