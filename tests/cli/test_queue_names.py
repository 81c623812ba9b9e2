"""Misspelled names of queues, on every storage that several processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq.blocking import drive
from pgjq.storage.workers import Registration
from tests.cli.run_command import answer, complaint, run

if TYPE_CHECKING:
    from pathlib import Path

    from pgjq.storage.base import Storage

OF_A_JOB = ("status", "result", "cancel", "retry", "delete")
OF_MANY = (("find",), ("retry",), ("cancel", "--yes"), ("delete", "--yes"), ("cancel", "--dry-run"))
OF_A_QUEUE = (("show",), ("pause",), ("resume",), ("blocked",), ("redrive",), ("delete",), ("delete", "--yes"))


@pytest.fixture(params=["postgres", "redis", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage with the queue `mail`, which has one job."""
    if request.param == "file":
        url = (tmp_path / "jobs").as_uri()
    elif request.param == "redis":
        request.getfixturevalue("redis_storage")
        url = request.getfixturevalue("redis_url")
    else:
        request.getfixturevalue("postgres")
        url = request.getfixturevalue("database")
    answer("enqueue", "mail", "1", "--id", "a", url=url)
    return url


@pytest.mark.parametrize("command", OF_A_JOB)
def test_a_command_for_a_job_says_that_there_is_no_such_queue(url: str, command: str) -> None:
    assert complaint(command, "mial", "a", url=url) == "there is no queue 'mial'; did you mean 'mail'?"
    assert "there is no queue" not in run(command, "mail", "b", url=url).output


@pytest.mark.parametrize("words", OF_MANY)
def test_a_command_for_many_jobs_says_that_there_is_no_such_queue(url: str, words: tuple[str, ...]) -> None:
    said = complaint("jobs", words[0], "--queue", "mial", *words[1:], url=url)
    assert said == "there is no queue 'mial'; did you mean 'mail'?"
    assert run("jobs", words[0], "--queue", "mail", "--singleton-key", "none", *words[1:], url=url).exit_code == 0


def test_counting_says_that_there_is_no_such_queue(url: str) -> None:
    assert complaint("queues", "stats", "mail", "mial", url=url) == "there is no queue 'mial'; did you mean 'mail'?"
    assert complaint("queues", "stats", "zzz", url=url) == "there is no queue 'zzz'"
    assert [stats["name"] for stats in answer("queues", "stats", url=url)] == ["mail"]


@pytest.mark.parametrize("words", OF_A_QUEUE)
def test_a_command_for_a_queue_says_that_there_is_no_such_queue(database: str, words: tuple[str, ...]) -> None:
    answer("enqueue", "mail", "1", url=database)
    said = complaint("queues", words[0], "mial", *words[1:], url=database)
    assert said == "there is no queue 'mial'; did you mean 'mail'?"


def test_a_queue_without_jobs_is_there_if_it_was_created(database: str) -> None:
    answer("queues", "create", "mail", url=database)
    assert answer("queues", "stats", "mail", url=database)[0]["total"] == 0
    assert answer("jobs", "find", "--queue", "mail", url=database) == []


def test_a_queue_that_a_worker_serves_is_there_before_its_first_job(database: str, postgres: Storage) -> None:
    drive(postgres.operations("sync").worker_seen(Registration("1", "ann", ("sms",), 10.0)))
    assert answer("queues", "stats", "sms", url=database)[0]["total"] == 0


@pytest.mark.parametrize("more", [(), ("--json",), ("--wait", "0.01s")])
def test_enqueueing_says_when_it_created_a_queue(url: str, more: tuple[str, ...]) -> None:
    said = run("enqueue", "mial", "1", *more, url=url).stderr
    assert said.startswith("created queue 'mial': it did not exist; did you mean 'mail'?\n")
    assert "created" not in run("enqueue", "mial", "1", *more, url=url).stderr


def test_enqueueing_lines_says_when_it_created_a_queue(url: str) -> None:
    result = run("enqueue", "sms", "-", "--lines", url=url, typed="1\n2\n")
    assert (result.stdout, result.stderr) == ("queued 2 jobs in queue sms\n", "created queue 'sms': it did not exist\n")


def test_a_job_that_is_refused_creates_no_queue(url: str) -> None:
    assert "created" not in run("enqueue", "mial", "1", "--max-attempts", "0", url=url).stderr
