"""The jobs that are enqueued: about 285 bytes of JSON each, as a small order has, and ids as callers choose them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

QUEUE = "bench"


def payload(number: int) -> dict[str, Any]:
    """Make a payload; no two are equal."""
    return {
        "order": number,
        "customer": {"id": number * 7919 % 1_000_003, "email": f"customer-{number}@example.com"},
        "lines": [{"sku": f"SKU-{number + line:08d}", "quantity": line + 1, "price": 19.95} for line in range(3)],
        "currency": "EUR",
        "note": "leave it with the neighbours",
    }


def payloads(count: int) -> list[dict[str, Any]]:
    """Make many."""
    return [payload(number) for number in range(count)]


def random_ids(count: int) -> list[str]:
    """Make ids in no order at all, which is the hardest case for the index that keeps them unique."""
    return [str(uuid4()) for _ in range(count)]
