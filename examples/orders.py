"""A shop that enqueues in its request's transaction.

The order and the job that will send its receipt are one commit. If the request fails after both were written, neither
is there; if it succeeds, both are, whatever happens to this process afterwards.

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
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import pgjq

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)  # Safe at every start, by every process.


def sqlalchemy_url(conninfo: str) -> URL:
    """Name the driver, which SQLAlchemy wants to know."""
    return make_url(conninfo).set(drivername="postgresql+psycopg")


engine = create_engine(sqlalchemy_url(storage.conninfo))


class Base(DeclarativeBase):
    """The shop's own tables."""


class Order(Base):
    """What somebody wants, and whether the receipt has been sent."""

    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    article: Mapped[str]
    email: Mapped[str]
    receipt_sent: Mapped[bool] = mapped_column(default=False)


Base.metadata.create_all(engine)

# --- the web application: a producer

app = FastAPI(title="A shop")
receipts = pgjq.Queue("receipts", storage=storage, concurrency=4)


def open_session() -> Iterator[Session]:
    """Give each request a transaction of its own. The routes commit it; whatever they do not commit is rolled back."""
    with Session(engine) as session:
        yield session


Transaction = Annotated[Session, Depends(open_session)]


@app.post("/orders", status_code=201)
def place_order(article: str, email: str, session: Transaction) -> dict[str, int]:
    """Take an order, and have its receipt sent."""
    order = Order(article=article, email=email)
    session.add(order)
    session.flush()  # Now the order has its number.
    # The id follows from the order, so that no order gets two receipts. `connection=` is the whole trick.
    receipts.enqueue(f"receipt-{order.id}", {"order": order.id}, connection=session)
    if article == "sand":
        raise HTTPException(422, "nobody sells sand")  # The order and the job are gone with the session.
    session.commit()  # Now both are there. Before we answer: a commit can fail, and then so must the request.
    return {"order": order.id}


@app.get("/orders/{number}")
def show_order(number: int, session: Transaction) -> dict[str, object]:
    """Tell what has become of an order."""
    order = session.get(Order, number)
    if order is None:
        raise HTTPException(404, "there is no such order")
    return {"article": order.article, "receipt_sent": order.receipt_sent}


# --- the worker: a consumer. It runs in a process of its own, `pgjq worker orders:receipts`


@receipts.execute
def send_receipt(job: pgjq.Job) -> None:
    """Send a receipt, and note it in the order."""
    # A mail cannot be rolled back. The job's id tells the mail service that it has had this one, should this run be
    # the second.
    mail(idempotency_key=job.id)
    # What the block writes and that the job is done are one commit.
    with job.transaction(lambda: Session(engine)) as session:
        session.get_one(Order, job.payload["order"]).receipt_sent = True


def mail(*, idempotency_key: str) -> None:
    """Stand here for your mail service."""
    print(f"sending {idempotency_key}", flush=True)
