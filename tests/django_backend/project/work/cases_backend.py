"""The backend in a TestCase: everything in the transaction of the test."""

from datetime import timedelta
from unittest import mock

import django
from django.db import connection, transaction
from django.test import TestCase
from django.utils import timezone

import pgjq
from pgjq.django.tasks_framework import (
    InvalidTask,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from pgjq.django.testing import drain, queue
from pgjq.testing import assert_enqueued, capture, refute_enqueued
from work import tasks

backend = task_backends["default"]


def retry_now() -> None:
    """Make retries due."""
    with connection.cursor() as cursor:
        cursor.execute("update pgjq.job set run_at = pgjq.now(), ready = true where state = 2")


class Signals:
    """Records the signals of a block."""

    def __enter__(self) -> list[tuple[str, str]]:
        self.seen: list[tuple[str, str]] = []
        self.receivers = []
        for name, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

            def receive(sender: object, task_result: object, name: str = name, **kwargs: object) -> None:
                del sender, kwargs
                self.seen.append((name, str(task_result.status)))

            signal.connect(receive)
            self.receivers.append((signal, receive))
        return self.seen

    def __exit__(self, *exc: object) -> None:
        for signal, receive in self.receivers:
            signal.disconnect(receive)


class BackendCases(TestCase):
    def setUp(self) -> None:
        tasks.ran.clear()

    def test_abilities(self) -> None:
        assert backend.supports_defer
        assert backend.supports_async_task
        assert backend.supports_get_result
        assert backend.supports_priority

    def test_a_task_runs_and_its_result_is_read(self) -> None:
        with Signals() as signals:
            result = tasks.add.enqueue(1, b=2)
            assert (result.status, result.attempts, result.is_finished) == ("READY", 0, False)
            assert result.enqueued_at is not None
            assert (result.args, result.kwargs, result.backend) == ([1], {"b": 2}, "default")
            assert drain() == 1
        assert signals == [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")]
        result.refresh()
        assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 1)
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.last_attempted_at == result.started_at
        again = tasks.add.get_result(result.id)
        assert again.return_value == 3
        assert again.worker_ids == result.worker_ids
        assert len(again.worker_ids) == 1
        assert again.task.module_path == "work.tasks.add"

    def test_ids_are_unique_in_all_queues(self) -> None:
        here = tasks.add.using(id="same").enqueue(1)
        there = tasks.add.using(id="same", queue_name="mail").enqueue(2)
        assert here.id != there.id
        assert drain() == 2
        assert backend.get_result(here.id).return_value == 1
        assert backend.get_result(there.id).return_value == 2
        assert backend.get_result(there.id).task.queue_name == "mail"

    def test_unknown_results(self) -> None:
        for unknown in ("default:nothing", "nothing", "", "no such queue:1", "default:"):
            with self.assertRaises(TaskResultDoesNotExist):
                backend.get_result(unknown)
        with self.assertRaisesMessage(Exception, "Task does not match"):
            tasks.mail.get_result(tasks.add.enqueue(1).id)

    def test_a_task_that_fails_has_three_attempts_with_backoff(self) -> None:
        with Signals() as signals:
            result = tasks.fails.enqueue()
            for ran in (1, 2, 3):
                assert drain() == 1
                result.refresh()
                assert (result.attempts, len(result.errors)) == (ran, ran)
                assert result.status == ("FAILED" if ran == 3 else "READY")
                if ran < 3:
                    assert result.task is not None
                    assert backend.client.get_status("default", result.id.partition(":")[2]).run_at > timezone.now()
                retry_now()
        assert drain() == 0
        assert result.errors[0].exception_class is LookupError
        assert "LookupError: no" in result.errors[2].traceback
        assert result.started_at < result.last_attempted_at < result.finished_at
        assert len(result.worker_ids) == 3
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value
        assert [name for name, _ in signals] == ["enqueued", "started", "started", "started", "finished"]
        assert signals[-1] == ("finished", "FAILED")

    def test_the_context_counts_attempts(self) -> None:
        result = tasks.attempt.enqueue(2)
        assert drain() == 1
        retry_now()
        assert drain() == 1
        result.refresh()
        assert result.return_value == [2, 1, 2, "RUNNING"]

    def test_an_async_task_uses_the_tests_connection(self) -> None:
        from django.contrib.auth.models import Group

        Group.objects.create(name="here")
        result = tasks.group_exists.enqueue("here")
        assert drain() == 1
        result.refresh()
        assert result.return_value is True

    def test_a_result_that_is_no_json_fails_the_task_at_once(self) -> None:
        with Signals() as signals:
            result = tasks.unserializable.enqueue()
            assert drain() == 1
        result.refresh()
        assert result.status == "FAILED"
        assert result.errors[0].exception_class is TypeError
        assert tasks.ran == ["unserializable"]
        assert signals[-1] == ("finished", "FAILED")

    def test_a_snooze_is_no_attempt(self) -> None:
        result = tasks.snoozes.enqueue()
        assert drain() == 2
        result.refresh()
        assert (result.status, result.attempts) == ("SUCCESSFUL", 1)

    def test_options_of_using(self) -> None:
        result = tasks.fails.using(max_attempts=1).enqueue()
        assert drain() == 1
        result.refresh()
        assert result.status == "FAILED"
        discarded = tasks.fails.using(discard_on=(LookupError,)).enqueue()
        assert drain() == 1
        discarded.refresh()
        assert (discarded.status, discarded.attempts) == ("FAILED", 1)
        at_once = tasks.fails.using(backoff=lambda _error, _attempt: 0).enqueue()
        assert drain() == 3
        at_once.refresh()
        assert at_once.attempts == 3

    def test_options_of_settings(self) -> None:
        with capture(queue()) as jobs:
            tasks.tuned.enqueue()
            tasks.add.enqueue(1)
        assert [job.max_attempts for job in jobs] == [5, 3]

    def test_options_of_the_decorator(self) -> None:
        if (6, 0) <= django.VERSION < (6, 1):
            self.skipTest("Django 6.0 passes no options on")
        made = tasks.task(max_attempts=7, singleton_key="order-{a}", priority=3)(tasks.add.func)
        with capture(queue()) as jobs:
            made.enqueue(4)
        assert (jobs[0].max_attempts, jobs[0].singleton_key, jobs[0].priority) == (7, "order-4", 3)

    def test_invalid_options(self) -> None:
        for options in ({"max_attempts": 0}, {"singleton_key": "{nothing}"}, {"expire_in_seconds": "x"}):
            with self.assertRaises(InvalidTask):
                tasks.add.using(**options)
        with self.assertRaises(InvalidTask):
            tasks.add.using(queue_name="nowhere")
        with self.assertRaises(InvalidTask):
            tasks.add.using(priority=101)
        with self.assertRaises(TypeError):
            tasks.add.using(unknown_option=1)

    def test_arguments_that_are_no_json(self) -> None:
        with self.assertRaises(TypeError):
            tasks.add.enqueue(object())
        refute_enqueued(queue(), task="work.tasks.add")

    def test_an_id_that_is_taken_returns_that_result(self) -> None:
        once = tasks.add.using(id="order-{a}")
        first = once.enqueue(1, b=5)
        assert drain() == 1
        with Signals() as signals:
            second = once.enqueue(1, b=6)
        assert (second.id, second.status, second.return_value) == (first.id, "SUCCESSFUL", 6)
        assert second.kwargs == {"b": 5}
        assert signals == []

    def test_order_and_time(self) -> None:
        tasks.add.enqueue(1)
        tasks.add.using(priority=100).enqueue(2)
        tasks.add.using(priority=-100).enqueue(3)
        deferred = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(4)
        assert drain() == 3
        assert [a for a, _ in tasks.ran] == [2, 1, 3]
        found = backend.get_result(deferred.id)
        assert found.status == "READY"
        assert found.task.run_after > timezone.now()

    def test_cancel_and_retry(self) -> None:
        result = tasks.add.enqueue(1)
        assert backend.cancel(result.id).status == "cancelled"
        result.refresh()
        assert (result.status, result.errors[0].exception_class) == ("FAILED", pgjq.JobCancelledError)
        backend.retry(result.id)
        result.refresh()
        assert result.status == "READY"
        assert drain() == 1

    def test_a_task_that_this_worker_does_not_know_is_put_back(self) -> None:
        backend.client.enqueue("default", "1", {"task": "work.tasks.tomorrow", "args": [], "kwargs": {}})
        backend.client.enqueue("default", "2", {"task": "os.getcwd", "args": [], "kwargs": {}})
        with self.assertLogs("pgjq", "WARNING"):
            assert drain() == 2
        for job in ("1", "2"):
            status = backend.client.get_status("default", job)
            assert (status.state, status.attempts) == ("queued", 0)
        with self.assertRaises(TaskResultDoesNotExist):
            backend.get_result("default:1")

    def test_a_rolled_back_savepoint_enqueues_nothing(self) -> None:
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            tasks.add.enqueue(1)
            _ = 1 / 0
        refute_enqueued(queue(), task="work.tasks.add")
        with transaction.atomic():
            tasks.add.enqueue(2)
        assert_enqueued(queue(), task="work.tasks.add", args=[2])

    def test_another_schema(self) -> None:
        result = tasks.elsewhere.enqueue()
        assert drain() == 0
        assert drain(backend="other") == 1
        result.refresh()
        assert result.return_value == "elsewhere"

    def test_memory_enqueues_when_the_transaction_commits(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            result = tasks.in_memory.enqueue(5)
            assert drain(backend="memory") == 0
        assert drain(backend="memory") == 1
        result.refresh()
        assert result.return_value == 5

    def test_statements_of_an_enqueue(self) -> None:
        tasks.add.enqueue(1)
        with self.assertNumQueries(1):
            tasks.add.enqueue(2)


class SettingsCases(TestCase):
    def test_findings(self) -> None:
        from pgjq.django import PgjqBackend

        def ids(**options: object) -> list[str]:
            return [finding.id for finding in PgjqBackend("x", {"OPTIONS": options}).check()]

        assert ids() == []
        assert ids(max_attempts=0) == ["pgjq.E001"]
        assert ids(nonsense=1) == ["pgjq.E001"]
        assert ids(tasks={"a.b": {"retry_limit": -1}}) == ["pgjq.E001"]
        assert ids(database="nowhere") == ["pgjq.E002"]
        assert ids(storage="memory:") == ["pgjq.W002"]
        with self.modify_settings(INSTALLED_APPS={"remove": "pgjq.django"}):
            assert ids() == ["pgjq.W001"]

    def test_psycopg_3_is_needed(self) -> None:
        from types import ModuleType

        backend = task_backends["default"]
        assert backend.check() == []
        with mock.patch.object(connection, "Database", ModuleType("psycopg2")):
            (finding,) = backend.check()
        assert (finding.id, "needs psycopg 3" in finding.msg) == ("pgjq.E004", True)

    def test_asserts_in_a_capture_see_its_block_only(self) -> None:
        tasks.add.enqueue(1, 2)
        with capture(queue()):  # Each call of queue() makes another object.
            refute_enqueued(queue(), args=[1, 2])
            tasks.add.enqueue(3, 4)
            assert_enqueued(queue(), args=[3, 4])
        assert_enqueued(queue(), args=[1, 2])

    def test_the_schema_is_checked(self) -> None:
        from django.core.checks import run_checks

        tags = ["database"]
        assert run_checks(databases=["default"], tags=tags) == []
        with connection.cursor() as cursor:
            cursor.execute("update pgjq.alembic_version set version_num = 'pgjq_0000'")
        assert [finding.id for finding in run_checks(databases=["default"], tags=tags)] == ["pgjq.W003"]

    def test_errors_of_settings_are_errors_of_use(self) -> None:
        wrong = {"default": {"BACKEND": "pgjq.django.PgjqBackend", "OPTIONS": {"nonsense": 1}}}
        with self.settings(TASKS=wrong), self.assertRaisesMessage(InvalidTask, "unknown option nonsense"):
            task_backends["default"].validate_task(tasks.add)
