"""Schedules from the command line."""

from __future__ import annotations

import psycopg

from tests.cli.run_command import answer, complaint, run


def test_a_schedule_is_created_changed_triggered_explained_and_deleted(database: str) -> None:
    options = ["--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--overlap", "skip", "--priority", "3"]
    made = answer("schedules", "create", "nightly", "imports", '{"a": 1}', *options, url=database)
    assert (made["cron"], made["payload"], made["overlap"], made["options"]) == (
        "0 3 * * *",
        {"a": 1},
        "skip",
        {"priority": 3},
    )
    changed = answer("schedules", "update", "nightly", "--every", "5m", "--unset", "priority", url=database)
    assert (changed["cron"], changed["every"], changed["options"]) == (None, 300.0, {})
    assert answer("schedules", "pause", "nightly", url=database) == {"schedule": "nightly", "paused": True}
    assert answer("schedules", "show", "nightly", url=database)["paused"] is True
    assert answer("schedules", "resume", "nightly", url=database)["paused"] is False
    job_id = answer("schedules", "trigger", "nightly", url=database)["job_id"]
    told = run("schedules", "explain", "nightly", "--count", "2", url=database).stdout.splitlines()
    assert told[0] == "nightly makes jobs of queue imports: every 5m, Europe/Berlin"
    assert [line.split()[0] for line in told[1:]] == ["next", "next", "last"]
    assert told[-1].endswith(f"triggered: made {job_id}")
    explained = answer("schedules", "explain", "nightly", url=database)
    assert (len(explained["next_runs"]), explained["ticks"][0]["job_id"]) == (5, job_id)
    assert [schedule["name"] for schedule in answer("schedules", "list", url=database)] == ["nightly"]
    assert run("schedules", "delete", "nightly", "--yes", url=database).stdout == "deleted schedule nightly\n"
    assert "there is no schedule 'nightly'" in complaint("schedules", "show", "nightly", url=database, code=2)


def test_an_invalid_schedule_from_sql_is_explained(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("select pgjq.create_schedule('odd', 'imports', cron => '* * * * *')")
        sql.execute("update pgjq.schedule set error = 'cron is odd', due_at = null")
    told = run("schedules", "explain", "odd", url=database).stdout.splitlines()
    assert told[1:] == ["it cannot run: cron is odd", "no next run", "no tick yet"]
    assert "say what to change" in complaint("schedules", "update", "odd", url=database, code=2)
    assert "cron" in complaint("schedules", "create", "s", "imports", "--cron", "61 * * * *", url=database, code=2)
