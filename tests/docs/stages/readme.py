"""What the README leaves behind: the worker that its first block began has run every job."""

import os

import pgjq


def afterwards() -> None:
    with pgjq.Client(pgjq.open_storage(os.environ["PGJQ_URL"])) as client:
        for order in (7, 8):
            result = client.enqueue_and_wait("mail", f"receipt-{order}", {"order": order}, timeout=60)
            assert result == f"sent the receipt of order {order}"
