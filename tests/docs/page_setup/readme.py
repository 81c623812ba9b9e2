"""What the README leaves behind: the worker that its first block began has run every job."""

import os
import time

import pgjq


def afterwards() -> None:
    with pgjq.Client(pgjq.open_storage(os.environ["PGJQ_URL"])) as client:
        while client.get_queue_stats("mail").completed < 3:
            time.sleep(0.05)
        assert client.get_result("mail", "receipt-8") == "sent the receipt of order 8"
