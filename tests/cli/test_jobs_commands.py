"""Jobs from the command line: one, many from a pipe, many by what they have in common."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from threading import Semaphore
from typing import TYPE_CHECKING

import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.lease import LeasePolicy
from pgjq.outcome import Failing
from pgjq.storage.base import Settlement
from tests.cli.run_command import PGJQ, answer, complaint, run

if TYPE_CHECKING:
    from pathlib import Path


def serve(storage: pgjq.PostgresStorage, *ids: str) -> None:
    """Run these jobs of the queue mail, and no others are there: a payload that is "bad" fails for good."""
    queue = pgjq.Queue("mail", storage=storage)

    @queue.execute
    def handle(job: pgjq.Job) -> object:
        if job.payload == "bad":
            raise pgjq.Discard("it is bad")
        return job.payload

    ended = Semaphore(0)
    for event in ("completed", "failed"):
        queue.on(event, lambda _event: ended.release())
    with queue:
        assert all(ended.acquire(timeout=60) for _ in ids)


def claim(storage: pgjq.PostgresStorage) -> None:
    """Take the only job, and keep it."""
    taken = storage.operations("sync").claim(["mail"], worker="ann", limit=1, policy=LeasePolicy())
    assert len(drive(taken)) == 1


def test_a_job_is_enqueued_with_its_options_and_told_by_status(database: str) -> None:
    options = ["--id", "a", "--priority", "7", "--delay", "1h", "--max-attempts", "5", "--singleton-key", "k"]
    told = answer("enqueue", "mail", '{"order": 7}', *options, url=database)
    assert told == {"queue": "mail", "status": "queued", "id": "a", "existing_state": None, "result": None}
    status = answer("status", "mail", "a", url=database)
    assert (status["state"], status["priority"], status["max_attempts"]) == ("queued", 7, 5)
    assert status["singleton_key"] == "k"
    assert status["run_at"] > status["created_at"] > "2020-01-01T00:00:00+00:00"


def test_status_tells_how_each_run_ended(database: str) -> None:
    with closing(pgjq.PostgresStorage(database)) as storage:
        answer("enqueue", "mail", "1", "--id", "a", url=database)
        ops = storage.operations("sync")
        (job,) = drive(ops.claim(["mail"], worker="ann", limit=1, policy=LeasePolicy()))
        drive(ops.settle([Settlement(job.lease, Failing(pgjq.JobError("ValueError", "no such order")))]))
    (attempt,) = answer("status", "mail", "a", url=database)["history"]
    assert (attempt["number"], attempt["worker"], attempt["outcome"]) == (1, "ann", "failed")
    assert attempt["error"]["message"] == "no such order"
    lines = run("status", "mail", "a", url=database).stdout.splitlines()
    headings = ["number", "worker", "started_at", "ended_at", "outcome", "error"]
    assert lines[lines.index("history") + 1].split() == headings
    assert lines[-1].split()[0] == "1"
    assert lines[-1].endswith("ValueError: no such order")


def test_the_same_id_again_is_a_duplicate_and_no_failure(database: str) -> None:
    answer("enqueue", "mail", "1", "--id", "a", url=database)
    told = answer("enqueue", "mail", "1", "--id", "a", url=database)
    assert (told["status"], told["existing_state"]) == ("duplicate", "queued")
    assert "is in queue mail already, queued" in run("enqueue", "mail", "1", "--id", "a", url=database).stdout


def test_a_payload_is_read_from_standard_input(database: str, postgres: pgjq.PostgresStorage) -> None:
    told = answer("enqueue", "mail", "-", "--content-id", url=database, typed=' {"größe": null} ')
    assert told["id"] == pgjq.content_id({"größe": None})
    serve(postgres, told["id"])
    assert answer("result", "mail", told["id"], url=database)["result"] == {"größe": None}
    assert run("result", "mail", told["id"], url=database).stdout == '{"größe": null}\n'


def test_lines_are_jobs_and_the_same_lines_again_are_duplicates(database: str) -> None:
    lines = "".join(f"{number}\n" for number in range(2_500)) + "\n"
    told = answer("enqueue", "mail", "-", "--lines", "--content-id", url=database, typed=lines)
    assert {one["status"] for one in told} == {"queued"}
    assert len({one["id"] for one in told}) == 2_500
    again = run("enqueue", "mail", "-", "--lines", "--content-id", url=database, typed=lines)
    assert again.stdout == "queued 0 jobs in queue mail; 2,500 were there already\n"


def test_a_line_that_is_no_json_says_which_and_what_was_enqueued_before(database: str) -> None:
    lines = "".join(f"{number}\n" for number in range(1_200)) + "{oops\n"
    said = complaint("enqueue", "mail", "-", "--lines", url=database, typed=lines, code=2)
    assert said.startswith("line 1201: this is not JSON: ")
    assert said.endswith("; 1,000 jobs before it were enqueued")
    (stats,) = answer("queues", "stats", "mail", url=database)
    assert stats["queued"] == 1_000


def test_waiting_prints_the_result_and_gives_up_in_time(database: str, postgres: pgjq.PostgresStorage) -> None:
    assert "--wait" in run("enqueue", "--help", url=database).stdout
    assert "'a'" in complaint("enqueue", "mail", "1", "--id", "a", "--wait", "0.1s", url=database)
    serve(postgres, "a")
    told = answer("enqueue", "mail", "1", "--id", "a", "--wait", "10s", url=database)
    assert told == {"queue": "mail", "id": "a", "state": "completed", "result": 1}


def test_a_result_that_is_not_there_says_why(database: str, postgres: pgjq.PostgresStorage) -> None:
    answer("enqueue", "mail", '"bad"', "--id", "a", url=database)
    assert complaint("result", "mail", "b", url=database) == "there is no job 'b' in queue 'mail'"
    assert complaint("result", "mail", "a", url=database) == "job 'a' has no result: it is queued"
    serve(postgres, "a")
    assert (
        complaint("result", "mail", "a", url=database)
        == "job 'a' has no result: it is failed, pgjq.outcome.Discard: it is bad"
    )
    answer("enqueue", "mail", "null", "--id", "b", url=database)
    serve(postgres, "b")
    assert answer("result", "mail", "b", url=database)["result"] is None


def test_a_result_of_another_serde_is_shown_as_base64(database: str, postgres: pgjq.PostgresStorage) -> None:
    queue = pgjq.Queue("mail", storage=postgres, result_serde=pgjq.MsgpackSerde())
    queue.execute(lambda _job: {"a": 200})
    with queue:
        queue.enqueue_and_wait("a", 1, timeout=60)
    assert answer("result", "mail", "a", url=database)["result"] == "gaFhzMg="
    assert answer("status", "mail", "a", url=database)["result"] == "gaFhzMg="


def test_cancel_retry_and_delete_do_as_they_say_and_tell_when_they_cannot(
    database: str, postgres: pgjq.PostgresStorage
) -> None:
    answer("enqueue", "mail", "1", "--id", "a", url=database)
    assert answer("cancel", "mail", "a", url=database) == {"queue": "mail", "id": "a", "status": "cancelled"}
    assert answer("cancel", "mail", "b", url=database, code=1)["status"] == "not_found"
    assert answer("retry", "mail", "a", url=database)["state"] == "queued"
    claim(postgres)
    assert answer("cancel", "mail", "a", url=database, code=1)["status"] == "processing"
    assert answer("cancel", "mail", "a", "--active", url=database)["status"] == "processing"
    assert "is running" in complaint("delete", "mail", "a", url=database)
    answer("enqueue", "mail", "1", "--id", "c", url=database)
    assert answer("delete", "mail", "c", url=database)["deleted"] is True
    for command in ("delete", "retry", "status"):
        assert complaint(command, "mail", "c", url=database) == "there is no job 'c' in queue 'mail'"


def test_found_jobs_are_a_table_for_people_and_an_array_for_programs(database: str) -> None:
    for job_id in ("a", "b", "c"):
        answer("enqueue", "mail", "1", "--id", job_id, url=database)
    answer("enqueue", "other", "1", "--id", "d", url=database)
    result = run("jobs", "find", "--queue", "mail", "--limit", "2", url=database)
    assert [line.split()[:3] for line in result.stdout.splitlines()] == [
        ["queue", "id", "state"],
        ["mail", "a", "queued"],
        ["mail", "b", "queued"],
    ]
    assert result.stderr == "these are the first 2; --limit or --all shows more\n"
    assert [job["id"] for job in answer("jobs", "find", "--all", url=database)] == ["a", "b", "c", "d"]
    assert answer("jobs", "find", "--state", "failed", url=database) == []


@pytest.mark.parametrize(("action", "done"), [("cancel", "cancelled"), ("delete", None)])
def test_many_jobs_are_counted_first_and_touched_only_with_a_yes(database: str, action: str, done: str | None) -> None:
    lines = "1\n" * 3
    answer("enqueue", "mail", "-", "--lines", url=database, typed=lines)
    told = answer("jobs", action, "--queue", "mail", "--dry-run", url=database)
    assert told == {"action": action, "dry_run": True, "jobs": 3}
    refused = run("jobs", action, "--queue", "mail", url=database, typed="n\n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"{action.capitalize()} 3 jobs? [y/N]" in refused.stderr
    assert "nothing was changed; --yes goes ahead without asking" in refused.stderr
    assert {job["state"] for job in answer("jobs", "find", url=database)} == {"queued"}
    assert answer("jobs", action, "--queue", "mail", "--yes", url=database)["jobs"] == 3
    assert {job["state"] for job in answer("jobs", "find", url=database)} == ({done} if done else set())


def test_failed_jobs_are_retried_by_the_filter(database: str, postgres: pgjq.PostgresStorage) -> None:
    for job_id in ("a", "b"):
        answer("enqueue", "mail", '"bad"', "--id", job_id, url=database)
    serve(postgres, "a", "b")
    created = answer("status", "mail", "b", url=database)["created_at"]
    assert answer("jobs", "retry", "--queue", "mail", "--dry-run", url=database)["jobs"] == 2
    assert answer("jobs", "retry", "--created-before", created, url=database)["jobs"] == 1
    assert [job["state"] for job in answer("jobs", "find", url=database)] == ["queued", "failed"]


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
def test_all_jobs_of_everything_are_never_meant(database: str, action: str) -> None:
    assert "say which jobs: --queue" in complaint("jobs", action, url=database, code=2)


def test_what_is_too_old_is_pruned_and_counted(database: str) -> None:
    assert answer("prune", url=database) == {"jobs": 0}


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    run("enqueue", "mail", "-", "--lines", url=url, typed="1\n" * 5_000)
    with subprocess.Popen(
        [PGJQ, "jobs", "find", "--all", "--json", "--url", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as find:
        assert find.stdout is not None
        assert find.stderr is not None
        assert find.stdout.readline() == b"[\n"
        assert json.loads(find.stdout.readline().rstrip(b",\n"))["queue"] == "mail"
        find.stdout.close()
        assert find.stderr.read() == b""


def test_a_waiting_job_is_rescheduled_and_a_running_one_released(database: str) -> None:
    answer("enqueue", "mail", "1", "--id", "a", "--delay", "1h", url=database)
    told = answer("reschedule", "mail", "a", "--run-at", "2026-01-31T09:30:00+01:00", "--priority", "9", url=database)
    assert (told["run_at"], told["priority"]) == ("2026-01-31T08:30:00+00:00", 9)
    assert "is not running: it is queued" in complaint("release", "mail", "a", url=database)
    with closing(pgjq.PostgresStorage(database)) as storage:
        claim(storage)
    assert "does not wait: it is processing" in complaint("reschedule", "mail", "a", "--priority", "1", url=database)
    assert answer("release", "mail", "a", url=database) == {"queue": "mail", "id": "a", "released": True}
    assert answer("status", "mail", "a", url=database)["state"] == "queued"
    assert "there is no job 'b'" in complaint("reschedule", "mail", "b", "--priority", "1", url=database)
    assert "there is no job 'b'" in complaint("release", "mail", "b", url=database)
    assert "say what to change" in complaint("reschedule", "mail", "a", url=database, code=2)
