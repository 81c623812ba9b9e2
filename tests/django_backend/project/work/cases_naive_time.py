"""A project with USE_TZ=False: its times have no zone, and pgjq's have one."""

from datetime import datetime, timedelta

from django.test import TestCase

from pgjq.django.tasks_framework import task_backends
from pgjq.django.testing import drain
from work import tasks


class NaiveTimeCases(TestCase):
    def test_times(self) -> None:
        deferred = tasks.add.using(run_after=datetime.now() + timedelta(hours=1)).enqueue(1)  # noqa: DTZ005
        due = tasks.add.using(run_after=datetime.now() - timedelta(minutes=1)).enqueue(2)  # noqa: DTZ005
        assert drain() == 1
        assert task_backends["default"].get_result(deferred.id).status == "READY"
        assert task_backends["default"].get_result(due.id).return_value == 2
