"""What the README leaves behind: the receipt was sent by the worker that its last line began."""

import os

import psycopg

import pgjq


def afterwards() -> None:
    url = os.environ["PGJQ_URL"]
    with pgjq.Client(pgjq.open_storage(url)) as client:
        client.enqueue_and_wait("mail", "receipt-7", {"order": 7}, timeout=60)
    with psycopg.connect(url) as shop:
        assert shop.execute("select mailed from orders").fetchall() == [(True,)]
