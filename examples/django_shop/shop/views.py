"""Place an order, and look at the receipt's task. Both views exist for sync and for async code."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import add_points, send_receipt


@require_POST
@transaction.atomic
def place_order(request: HttpRequest) -> JsonResponse:
    """Store an order and enqueue its receipt in one transaction: both happen, or neither."""
    order = Order.objects.create(customer=request.POST["customer"], total=request.POST["total"])
    result = send_receipt.enqueue(order.pk)
    if request.POST.get("fail"):
        message = "the payment was refused"
        raise RuntimeError(message)
    return JsonResponse({"order": order.pk, "result": result.id})


async def give_points(request: HttpRequest, order_id: int) -> JsonResponse:
    """Enqueue from an async view."""
    del request
    result = await add_points.aenqueue(order_id)
    return JsonResponse({"result": result.id})


async def show_result(request: HttpRequest, result_id: str) -> JsonResponse:
    """Read a result in an async view."""
    del request
    result = await send_receipt.get_backend().aget_result(result_id)
    value = result.return_value if result.status == "SUCCESSFUL" else None
    return JsonResponse({"status": result.status, "attempts": result.attempts, "value": value})
