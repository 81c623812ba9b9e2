"""Take the pictures of the web page for its documentation: a filled database, the page, and Chromium."""

from __future__ import annotations

import math
import random
import tempfile
from pathlib import Path
from typing import Any

import psycopg

import pgjq
from pgjq.blocking import drive
from pgjq.embedded import EmbeddedServer
from pgjq.outcome import Completed, Failed, Failing
from pgjq.storage.base import Settlement
from pgjq.storage.workers import Registration
from tests.web.chromium import Chromium
from tests.web.conftest import TOKEN
from tests.web.test_browser import served

HERE = Path(__file__).parent
REFUSED = pgjq.JobError(
    "SMTPRecipientsRefused",
    "550 no such user ann@example.com",
    'Traceback (most recent call last):\n  File "/srv/shop/tasks/mail.py", line 41, in send\n    smtp.send(message)\n'
    "SMTPRecipientsRefused: 550 no such user ann@example.com",
)
LATE = pgjq.JobError(
    "TimeoutError",
    "the payment provider did not answer within 10 s",
    'Traceback (most recent call last):\n  File "/srv/shop/tasks/invoices.py", line 12, in charge\n'
    "    answer = provider.post(order, timeout=10)\nTimeoutError",
)
PICTURES = (
    ("overview", "", "light"),
    ("job", "job?queue=mail&id=receipt-331", "dark"),
    ("doctor", "doctor", "light"),
)
MINUTE = """
insert into pgjq.minute
select date_trunc('minute', now()) - make_interval(mins => %s), q.id, %s, %s, 0, %s, %s, 20, %s
from pgjq.queue as q where q.name = 'mail'
"""


def main() -> None:
    """Take them all."""
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedServer.start(Path(directory) / "server") as server,
    ):
        pgjq.migrate(server.conninfo)
        storage = pgjq.PostgresStorage(server.conninfo)
        fill(storage, server.conninfo)
        with served(storage) as url, Chromium(Path(directory) / "profile") as browser:
            for name, page, scheme in PICTURES:
                browser.screen(1200, 900, scheme)
                browser.open(f"{url}?token={TOKEN}")
                browser.open(url + page)
                browser.until("!document.getElementById('pulse').hidden || !document.querySelector('[data-live]')")
                browser.picture(HERE / f"{name}.png")
        storage.close()


def fill(storage: Any, conninfo: str) -> None:
    """Add queues, jobs in every state, workers, and a day of statistics."""
    client, ops = pgjq.Client(storage), storage.operations("sync")
    for name, options in {
        "mail.dead": {},
        "mail": {"dead_letter": "mail.dead"},
        "invoices": {"policy": "key_strict_fifo"},
        "reports": {},
    }.items():
        client.create_queue(name, **options)
    payload = {"order": 9007199254740993, "to": "ann@example.com", "lines": [{"sku": "A-1", "price": 12.5}]}
    client.enqueue_many("mail", [(f"receipt-{n}", payload) for n in range(400)])
    client.enqueue_many(
        "invoices", [pgjq.NewJob(f"invoice-{n}", n, singleton_key=f"customer-{n % 3}") for n in range(12)]
    )
    client.enqueue_many("reports", [(f"report-{n}", n) for n in range(25)])
    for queue, count, outcome in (
        ("mail", 330, Completed(b'{"sent": true}')),
        ("mail", 7, Failed(REFUSED)),
        ("mail", 3, Failing(LATE, 600.0)),
        ("invoices", 1, Failed(LATE)),
    ):
        jobs = drive(ops.claim([queue], worker="worker-web3-1", limit=count, policy=pgjq.LeasePolicy()))
        drive(ops.settle([Settlement(job.lease, outcome) for job in jobs]))
    client.retry("mail", "receipt-331")
    (again,) = drive(ops.claim(["mail"], worker="worker-web4-1", limit=1, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(again.lease, Failed(REFUSED))]))
    drive(ops.claim(["mail"], worker="worker-web3-1", limit=4, policy=pgjq.LeasePolicy(lease=600)))
    for worker, queues in {"worker-web3-1": ("mail", "invoices"), "worker-web4-1": ("mail",)}.items():
        drive(ops.worker_seen(Registration(worker, worker, queues, 10.0)))
    drive(ops.observe())
    draw_day(conninfo)


def draw_day(conninfo: str) -> None:
    """Write statistics of a day, with a peak."""
    chance = random.Random(1)  # noqa: S311  (no secret)
    with psycopg.connect(conninfo) as connection:
        connection.execute("delete from pgjq.minute")
        for back in range(1, 24 * 60):
            ended = int(40 + 25 * math.sin(back / 9) + chance.random() * 15)
            waited = 0.3 + chance.random() + (6 if 20 < back < 28 else 0)  # noqa: PLR2004
            failed = int(chance.random() ** 6 * 20)
            connection.execute(MINUTE, [back, ended, failed, waited, 0.8 + 0.3 * chance.random(), 2 + waited * 2])


if __name__ == "__main__":
    main()
