"""The shop's tasks, as Django's tasks framework defines them."""

import asyncio

try:
    from django.tasks import task
except ImportError:  # Django 5.2
    from django_tasks import task

from shop.models import Order


@task(queue_name="mail", priority=10)
def send_receipt(order_id: int) -> str:
    """Send a receipt; a customer without an address fails, and is tried again."""
    order = Order.objects.get(pk=order_id)
    if "@" not in order.customer:
        message = f"{order.customer} has no address"
        raise ValueError(message)
    order.receipt_sent = True
    order.save()
    return f"receipt to {order.customer}"


@task()
async def add_points(order_id: int) -> int:
    """Add the points of an order: an async task."""
    order = await Order.objects.aget(pk=order_id)
    await asyncio.sleep(0)
    order.points = int(order.total)
    await order.asave()
    return order.points


@task(takes_context=True)
def count_attempts(context: object) -> int:
    """Return which attempt this is."""
    return context.attempt  # type: ignore[attr-defined]
