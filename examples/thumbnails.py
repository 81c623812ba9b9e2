"""Thumbnails while you wait: an HTTP service that hands the work to workers and waits for their answer.

The web process never decodes an image, so a large one blocks nobody, and workers can be as many as there are cores. Two
requests for the same image at the same time share one job; a third one later gets the cached result.

    uvicorn thumbnails:app &                       # asks
    pgjq worker thumbnails:queue --processes 2 &   # answers
    curl --data-binary @photo.jpg 'localhost:8000/thumbnail?size=200' -o small.png
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, HTTPException, Query, Request, Response
from PIL import Image, UnidentifiedImageError

import pgjq

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)

# MessagePack carries bytes as they are; JSON would make them a third longer. Images of some megabytes are fine; larger
# ones belong into a file or an object store, and their address into the payload.
queue = pgjq.AsyncQueue(
    "thumbnails",
    storage=storage,
    payload_serde=pgjq.MsgpackSerde(),
    result_serde=pgjq.MsgpackSerde(),
    concurrency=2,
    result_ttl=600,  # For ten minutes the same request gets the same answer, and nothing runs.
)

# --- the web application: asks


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Close what the storage holds on this event loop, when the application ends."""
    async with pgjq.AsyncClient(storage):
        yield


app = FastAPI(title="Thumbnails", lifespan=lifespan)


@app.post("/thumbnail")
async def thumbnail(
    request: Request,
    size: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Make a thumbnail of the image in the request's body."""
    wanted = {"image": await request.body(), "size": size}
    try:
        # Equal content, equal id: callers who want the same thing join the same job.
        answer = await queue.enqueue_and_wait(pgjq.content_id(wanted), wanted, timeout=20)
    except pgjq.JobFailedError as error:
        raise HTTPException(422, error.original_error.message) from error
    except pgjq.TimeoutError as error:  # The job goes on: who asks again may find it done.
        raise HTTPException(503, str(error), headers={"Retry-After": "5"}) from error
    return Response(answer, media_type="image/png")


# --- the worker: answers


@queue.execute
async def make_thumbnail(job: pgjq.AsyncJob) -> bytes:
    """Decode and shrink on a thread, so that the worker's event loop stays free."""
    try:
        return await asyncio.to_thread(shrink, job.payload["image"], job.payload["size"])
    except UnidentifiedImageError as error:
        raise pgjq.Discard("this is not an image") from error  # Trying again would not help.


def shrink(data: bytes, size: int) -> bytes:
    """Fit an image into a square."""
    with Image.open(BytesIO(data)) as image:
        image.thumbnail((size, size))
        out = BytesIO()
        image.save(out, format="PNG")
    return out.getvalue()
