"""Transactions that commit, the commands, and workers in processes of their own."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path

from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import TransactionTestCase

import pgjq
from pgjq.django.storages import conninfo_of
from pgjq.django.tasks_framework import TaskResultDoesNotExist, task_backends
from pgjq.django.testing import drain, queue
from pgjq.testing import refute_enqueued
from work import tasks

backend = task_backends["default"]
MANAGE = Path(__file__).parents[1] / "manage.py"


def start_worker(*options: str, **environment: str) -> subprocess.Popen[str]:
    """Start a worker on the test database."""
    env = os.environ | {"PGDATABASE": connection.settings_dict["NAME"], "PYTHONUNBUFFERED": "1"} | environment
    command = [sys.executable, str(MANAGE), "pgjq_worker", *options]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(lines: Iterator[str], text: str) -> None:
    """Read the output of a worker up to a text."""
    read: list[str] = []
    for line in lines:
        read.append(line)
        if text in line:
            return
    raise AssertionError("".join(read))


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a worker's end, and return what it said."""
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return output


class TransactionCases(TransactionTestCase):
    def test_commit_and_rollback(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            rolled_back = tasks.add.enqueue(1)
            _ = 1 / 0
        with self.assertRaises(TaskResultDoesNotExist):
            backend.get_result(rolled_back.id)
        with transaction.atomic():
            committed = tasks.add.enqueue(2)
            others: list[object] = []
            look = threading.Thread(target=lambda: others.extend(self.seen_elsewhere()))
            look.start()
            look.join()
            assert others == [0]
        assert drain() == 1
        assert backend.get_result(committed.id).return_value == 2

    def seen_elsewhere(self) -> list[int]:
        with closing(pgjq.PostgresStorage(conninfo_of("default"))) as storage:
            return [pgjq.Client(storage).get_queue_stats("default").total]

    def test_each_test_begins_without_jobs(self) -> None:
        refute_enqueued(queue(), task="work.tasks.add")
        backend.client.create_queue("own", partition=True)
        backend.client.enqueue("own", None, 1)
        backend.client.create_schedule("nightly", "default", cron="0 3 * * *")
        tasks.add.enqueue(1)
        call_command("flush", verbosity=0, interactive=False)
        assert backend.client.get_queues() == []
        assert backend.client.get_schedules() == []

    async def test_async_enqueue(self) -> None:
        from asgiref.sync import sync_to_async

        result = await tasks.add.aenqueue(1, 2)
        assert await sync_to_async(drain)() == 1
        await result.arefresh()
        assert result.return_value == 3
        assert (await tasks.add.aget_result(result.id)).return_value == 3


class WorkerCases(TransactionTestCase):
    def test_a_lost_connection_harms_no_later_task(self) -> None:
        broken = tasks.break_connection.enqueue()
        leaking = tasks.leave_transaction_open.enqueue()
        made = [tasks.make_group.enqueue(f"group {n}") for n in range(3)]
        checked = tasks.group_exists.enqueue("group 0")
        finish(start_worker("--drain", "--concurrency", "1"))
        for result in (broken, leaking, *made, checked):
            result.refresh()
            assert (result.status, result.attempts) == ("SUCCESSFUL", 1), (result.task.name, result.errors)
        assert checked.return_value is True
        assert sorted(Group.objects.values_list("name", flat=True)) == ["group 0", "group 1", "group 2"]

    def test_sigterm_drains(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "go on")
            running = tasks.wait_for_file.enqueue(str(path))
            worker = start_worker("--concurrency", "1")
            try:
                started = Path(f"{path}.started")
                until = time.monotonic() + 60
                while not started.exists() and time.monotonic() < until:
                    time.sleep(0.02)
                running.refresh()
                assert running.status == "RUNNING"
                assert running.attempts == 1
                waiting = tasks.add.enqueue(1)
                worker.send_signal(signal.SIGTERM)
                assert worker.stdout is not None
                wait_for(iter(worker.stdout), "stopping")
            finally:
                path.touch()
                worker.wait(60)
                worker.stdout.close()
            running.refresh()
            waiting.refresh()
            assert (running.status, running.return_value) == ("SUCCESSFUL", "done")
            assert waiting.status == "READY"

    def test_processes(self) -> None:
        results = [tasks.make_group.enqueue(f"group {n}") for n in range(10)]
        finish(start_worker("--drain", "--processes", "2", "--concurrency", "2"))
        for result in results:
            result.refresh()
            assert result.status == "SUCCESSFUL"

    def test_the_code_is_loaded_again(self) -> None:
        """In development the worker starts again when a module has changed, and gives back what runs."""
        worker = start_worker("--concurrency", "1", PROJECT_DEBUG="1")
        assert worker.stdout is not None
        module, seen = Path(__file__).with_name("__init__.py"), threading.Event()

        def touch() -> None:
            while not seen.wait(0.5):  # The reloader may not have looked at the file before.
                module.touch()

        toucher = threading.Thread(target=touch)
        try:
            lines = iter(worker.stdout)
            wait_for(lines, "starts again when the code changes")
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "go on")
                running = tasks.wait_for_file.enqueue(str(path))
                until = time.monotonic() + 60
                while not Path(f"{path}.started").exists() and time.monotonic() < until:
                    time.sleep(0.02)
                toucher.start()
                wait_for(lines, "changed, reloading")
                seen.set()
                toucher.join()
                path.touch()
                wait_for(lines, "starts again when the code changes")
            after = tasks.add.enqueue(3)
            until = time.monotonic() + 60
            while not after.is_finished and time.monotonic() < until:
                after.refresh()
            running.refresh()
            assert (after.status, running.status) == ("SUCCESSFUL", "SUCCESSFUL")
        finally:
            seen.set()
            worker.send_signal(signal.SIGINT)
            worker.wait(60)
            worker.stdout.close()

    def test_refusals(self) -> None:
        for options, message in (
            (["--backend", "memory", "--queue", ""], "name"),
            (["--health-port", "1", "--metrics-port", "x"], "invalid"),
        ):
            with self.assertRaisesMessage(CommandError, message):
                call_command("pgjq_worker", *options, "--drain", "--no-reload")


class MigrationCases(TransactionTestCase):
    def revision(self) -> str:
        out = StringIO()
        call_command("pgjq_migrate", "--status", stdout=out)
        return out.getvalue()

    def test_migrations_match(self) -> None:
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)
        assert self.revision() == (
            f"schema pgjq: revision {pgjq_head()}, newest {pgjq_head()}\n"
            f"schema other schema: revision {pgjq_head()}, newest {pgjq_head()}\n"
        )

    def test_down_and_up(self) -> None:
        call_command("migrate", "pgjq", "zero", verbosity=0)
        assert "schema pgjq: revision none" in self.revision()
        call_command("migrate", "pgjq", verbosity=0)
        tasks.add.enqueue(1)
        assert drain() == 1

    def test_after_pgjq_migrate(self) -> None:
        call_command("migrate", "pgjq", "zero", verbosity=0)
        call_command("pgjq_migrate", stdout=StringIO())
        call_command("migrate", "pgjq", verbosity=0)
        tasks.elsewhere.enqueue()
        assert drain(backend="other") == 1

    def test_sqlmigrate(self) -> None:
        out = StringIO()
        call_command("sqlmigrate", "pgjq", "0001", stdout=out)
        assert "create function pgjq.now()" in out.getvalue()
        assert 'create function "other schema".now()' in out.getvalue()


def pgjq_head() -> str:
    from pgjq.django.schema import head

    return head()
