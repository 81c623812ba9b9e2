"""How a Django project tests its tasks: with Django's own test cases, and `drain` to run what was enqueued."""

import json
from datetime import timedelta

from django.test import TestCase, TransactionTestCase

from pgjq.django.testing import drain, forget_jobs, queue
from pgjq.testing import assert_enqueued, capture, refute_enqueued
from shop.models import Order
from shop.tasks import add_points, count_attempts, send_receipt


class ReceiptTests(TestCase):
    """Everything happens in the transaction of the test. Other storages than PostgreSQL enqueue when it commits."""

    def setUp(self) -> None:
        """Place an order by hand."""
        self.addCleanup(forget_jobs)  # Of those in memory; the others go with the test's transaction.
        self.order = Order.objects.create(customer="ann@example.org", total="12.50")

    def test_an_order_sends_a_receipt(self) -> None:
        """The view enqueues, and the task runs."""
        with capture(queue("mail")) as jobs, self.captureOnCommitCallbacks(execute=True):
            answer = self.client.post("/orders/", {"customer": "bob@example.org", "total": "7"})
        assert_enqueued(queue("mail"), task="shop.tasks.send_receipt", args=[answer.json()["order"]], since=jobs)
        assert drain() == 1
        assert Order.objects.get(pk=answer.json()["order"]).receipt_sent
        shown = self.client.get(f"/results/{answer.json()['result']}/").json()
        assert shown == {"status": "SUCCESSFUL", "attempts": 1, "value": "receipt to bob@example.org"}

    def test_a_failing_receipt_is_tried_again_later(self) -> None:
        """The first attempt fails, and the task waits for its retry."""
        self.order.customer = "unknown"
        self.order.save()
        with self.captureOnCommitCallbacks(execute=True):
            result = send_receipt.enqueue(self.order.pk)
        assert drain("mail") == 1
        result.refresh()
        assert (result.status, result.attempts) == ("READY", 1)
        assert result.errors[0].exception_class is ValueError

    def test_an_async_task(self) -> None:
        """A coroutine function runs, and its ORM calls use the connection of the test."""
        with self.captureOnCommitCallbacks(execute=True):
            add_points.enqueue(self.order.pk)
        assert drain() == 1
        self.order.refresh_from_db()
        assert self.order.points == 12

    def test_a_deferred_task_waits(self) -> None:
        """What is due later does not run now."""
        from django.utils import timezone

        with self.captureOnCommitCallbacks(execute=True):
            count_attempts.using(run_after=timezone.now() + timedelta(hours=1)).enqueue()
        assert drain() == 0


class OrderTests(TransactionTestCase):
    """Transactions really commit and roll back."""

    def test_an_order_that_is_rolled_back_enqueues_nothing(self) -> None:
        """The order and its job go together."""
        with self.assertRaises(RuntimeError):
            self.client.post("/orders/", {"customer": "ann@example.org", "total": "7", "fail": "1"})
        assert not Order.objects.exists()
        refute_enqueued(queue("mail"), task="shop.tasks.send_receipt")

    async def test_async_views(self) -> None:
        """A view enqueues by aenqueue and reads by aget_result."""
        from asgiref.sync import sync_to_async

        order = await Order.objects.acreate(customer="ann@example.org", total="30")
        answer = json.loads((await self.async_client.get(f"/orders/{order.pk}/points/")).content)
        assert await sync_to_async(drain)() == 1
        result = await add_points.aget_result(answer["result"])
        assert result.return_value == 30
