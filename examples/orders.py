"""Take orders in a web application that enqueues in its request's transaction.

The order and the job that sends its receipt are one commit. If the request fails after writing both, neither exists; if
it succeeds, both exist, even if this process dies afterwards.

    uvicorn orders:app &                         # takes orders
    pgjq worker orders:receipts &                # sends receipts
    curl -X POST 'localhost:8000/orders?article=tea&email=ann@example.org'
    curl localhost:8000/orders/1
    curl -X POST 'localhost:8000/orders?article=sand&email=ann@example.org'      # refused: no order, and no job
"""

from __future__ import annotations

import os
from collections.abc import Iterator  # noqa: TC003  (FastAPI reads annotations when it runs)
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pgjq

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)  # Safe at every start, by every process.


def sqlalchemy_url(conninfo: str) -> URL:
    """Add the driver's name, which SQLAlchemy requires."""
    return make_url(conninfo).set(drivername="postgresql+psycopg")


engine = create_engine(sqlalchemy_url(storage.conninfo))


class Base(DeclarativeBase):
    """The shop's own tables."""


class Order(Base):
    """An article that a customer ordered, and whether the receipt has been sent."""

    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str]
    email: Mapped[str]
    receipt_sent: Mapped[bool] = mapped_column(default=False)


with engine.begin() as connection:
    connection.execute(text("select pg_advisory_xact_lock(1)"))  # The web application and a worker may start at once.
    Base.metadata.create_all(connection)

# --- the web application: a producer

app = FastAPI(title="A shop")
receipts = pgjq.Queue("receipts", storage=storage, concurrency=4)


def open_session() -> Iterator[Session]:
    """Open a session for each request. The routes commit it; closing it rolls back anything else."""
    with Session(engine) as session:
        yield session


Transaction = Annotated[Session, Depends(open_session)]


@app.post("/orders", status_code=201)
def place_order(article: str, email: str, session: Transaction) -> dict[str, int]:
    """Store an order, and enqueue the job that sends its receipt."""
    order = Order(article=article, email=email)
    session.add(order)
    session.flush()  # Assigns the order's id.
    # The task derives the job's id from the order's, so that no order gets two receipts. `connection=` joins the
    # transaction.
    send_receipt.using(connection=session).enqueue(order.id)
    if article == "sand":
        raise HTTPException(422, "sand is not in stock")  # Closing the session rolls back the order and the job.
    session.commit()  # Commits both, before the response: if the commit fails, the request must fail.
    return {"order": order.id}


@app.get("/orders/{number}")
def show_order(number: int, session: Transaction) -> dict[str, object]:
    """Return an order, and whether its receipt has been sent."""
    order = session.get(Order, number)
    if order is None:
        raise HTTPException(404, "there is no such order")
    return {"article": order.article, "receipt_sent": order.receipt_sent}


# --- the worker: a consumer, in a separate process: `pgjq worker orders:receipts`


@receipts.task(id="receipt-{order}")
def send_receipt(order: int) -> None:
    """Send a receipt, and record it in the order."""
    job = pgjq.current_job(pgjq.Job)
    # A mail cannot be rolled back. By the job's id the mail service recognises the request of a second run.
    mail(idempotency_key=job.id)
    # The writes of the block and the job's completion are one commit.
    with job.transaction(lambda: Session(engine)) as session:
        session.get_one(Order, order).receipt_sent = True


def mail(*, idempotency_key: str) -> None:
    """Print instead of calling your mail service."""
    print(f"sending {idempotency_key}", flush=True)
