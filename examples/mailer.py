"""Run a worker inside a FastAPI application: the lifespan starts it and stops it.

One process takes requests and runs jobs, which suits small services and development. For more work, start further
workers of the same module (`pgjq worker mailer`): they share the queue.

    uvicorn mailer:app &
    curl -X POST 'localhost:8000/welcome?to=ann@example.org'       # {"job": "welcome-ann@example.org"}
    curl localhost:8000/jobs/welcome-ann@example.org               # {"state": "completed", "result": …}
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI, HTTPException

import pgjq

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)
mail = pgjq.AsyncQueue("mail", storage=storage, concurrency=20)


@mail.task(id="welcome-{to}", retry_on=(ConnectionError,), max_attempts=5)
async def welcome(to: str) -> str:
    """Return a text instead of calling your mail service."""
    return f"welcomed {to}"


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Run a worker while the application runs; at the end its running jobs finish, and the rest is released."""
    async with mail:
        yield


app = FastAPI(title="A mailer", lifespan=lifespan)


@app.post("/welcome", status_code=202)
async def send_welcome(to: str) -> dict[str, str]:
    """Enqueue a mail. A second request for the same address finds the first job."""
    handle = await welcome.enqueue(to)
    return {"job": handle.id}


@app.get("/jobs/{job_id}")
async def show_job(job_id: str) -> dict[str, object]:
    """Return the state of a job, and its result if it has one."""
    status = await mail.get_status(job_id)
    if status is None:
        raise HTTPException(404, "there is no such job")
    return {"state": status.state, "result": status.result}
