"""A shop that enqueues in its request's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pgjq
    from tests.examples.conftest import Processes


def test_an_order_has_its_receipt_and_a_refused_one_has_neither(processes: Processes, client: pgjq.Client) -> None:
    shop = processes.serve("orders:app")
    processes.start("pgjq", "worker", "orders:receipts")
    placed = shop.post("/orders", params={"article": "tea", "email": "ann@example.org"})
    refused = shop.post("/orders", params={"article": "sand", "email": "ann@example.org"})
    assert (placed.status_code, placed.json(), refused.status_code) == (201, {"order": 1}, 422)
    client.wait("receipts", "receipt-1", timeout=60)
    assert shop.get("/orders/1").json() == {"article": "tea", "receipt_sent": True}
    assert shop.get("/orders/2").status_code == 404
    assert [job.id for job in client.find_jobs("receipts")] == ["receipt-1"]
