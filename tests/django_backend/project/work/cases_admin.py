"""The pages of the admin."""

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import TestCase

from pgjq.django.tasks_framework import task_backends
from pgjq.django.testing import drain
from work import tasks

backend = task_backends["default"]


class AdminCases(TestCase):
    def setUp(self) -> None:
        self.client.force_login(User.objects.create_superuser("root"))

    def act(self, model: str, action: str, *keys: object) -> str:
        data = {"action": action, "_selected_action": [str(key) for key in keys]}
        answer = self.client.post(f"/admin/pgjq/{model}/", data, follow=True)
        assert answer.status_code == 200
        return " ".join(map(str, answer.context["messages"]))

    def number(self, result: object) -> int:
        with connection.cursor() as cursor:
            cursor.execute("select seq from pgjq.jobs where id = %s", [result.id.partition(":")[2]])
            return cursor.fetchone()[0]

    def test_jobs(self) -> None:
        waiting, failing = tasks.add.using(run_after=None).enqueue(1), tasks.fails.using(max_attempts=1).enqueue()
        backend.cancel(waiting.id)
        assert drain() == 1
        page = self.client.get("/admin/pgjq/job/").content.decode()
        assert "work.tasks.add" in page
        assert "work.tasks.fails" in page
        assert "work.tasks.add" not in self.client.get("/admin/pgjq/job/?state=failed").content.decode()
        assert "2 jobs" in self.client.get("/admin/pgjq/job/?queue=default").content.decode()
        found = self.client.get(f"/admin/pgjq/job/?q={failing.id.partition(':')[2]}").content.decode()
        assert "work.tasks.add" not in found
        shown = self.client.get(f"/admin/pgjq/job/{self.number(failing)}/change/").content.decode()
        assert "LookupError: no" in shown
        assert "&quot;task&quot;" in shown
        assert 'name="_save"' not in shown

    def test_retry_and_cancel(self) -> None:
        failed = tasks.fails.using(max_attempts=1).enqueue()
        assert drain() == 1
        assert "retried: 1" in self.act("job", "retry", self.number(failed))
        failed.refresh()
        assert failed.status == "READY"
        assert "cancelled: 1" in self.act("job", "cancel", self.number(failed))
        done = tasks.add.enqueue(1)
        assert drain() == 1
        assert "is completed, and cannot be cancelled" in self.act("job", "cancel", self.number(done))
        failed.refresh()
        assert failed.status == "FAILED"
        assert LogEntry.objects.filter(content_type__model="job").count() == 2

    def test_queues(self) -> None:
        tasks.add.enqueue(1)
        assert "paused: 1" in self.act("queue", "pause", "default")
        assert drain() == 0
        assert "resumed: 1" in self.act("queue", "resume", "default")
        assert drain() == 1

    def test_schedules(self) -> None:
        payload = {"task": "work.tasks.add", "args": [1], "kwargs": {}}
        backend.client.create_schedule("nightly", "default", payload, cron="0 3 * * *")
        assert "nightly" in self.client.get("/admin/pgjq/schedule/").content.decode()
        assert "paused: 1" in self.act("schedule", "pause", "nightly")
        assert backend.client.get_schedule("nightly").paused
        assert "resumed: 1" in self.act("schedule", "resume", "nightly")
        assert "triggered: 1" in self.act("schedule", "trigger", "nightly")
        assert drain() == 1

    def test_permissions(self) -> None:
        reader = User.objects.create_user("reader", is_staff=True)
        reader.user_permissions.add(Permission.objects.get(codename="view_job"))
        self.client.force_login(reader)
        result = tasks.add.enqueue(1)
        assert "work.tasks.add" in self.client.get("/admin/pgjq/job/").content.decode()
        self.act("job", "cancel", self.number(result))
        result.refresh()
        assert result.status == "READY"
        assert self.client.get("/admin/pgjq/queue/").status_code == 403
        assert self.client.get("/admin/pgjq/job/add/").status_code == 403
