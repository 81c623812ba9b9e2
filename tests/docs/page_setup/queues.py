"""What the page takes for granted: two moments of the past, a job that waits and one that runs."""

import os
from datetime import UTC, datetime, timedelta

import pgjq
from pgjq.blocking import drive

noon = datetime.now(UTC) - timedelta(hours=1)
last_week = noon - timedelta(days=7)

setup_client = pgjq.Client(pgjq.open_storage(os.environ["PGJQ_URL"]))
setup_client.enqueue("mail", "receipt-8", None)
operations = setup_client.storage.operations("sync")
(running,) = drive(operations.claim(["mail"], worker="w", limit=1, policy=pgjq.LeasePolicy()))
setup_client.enqueue("mail", "receipt-7", None)


def afterwards() -> None:
    assert setup_client.get_status("mail", "receipt-7").priority == 10
    assert setup_client.get_status("mail", "receipt-8").state == "queued"
