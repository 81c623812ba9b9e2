"""Serve thumbnails over HTTP: the service enqueues a job and waits for its result.

The web process never decodes an image, so a large image blocks no other request, and you can run one worker per core.
Two concurrent requests for the same image share one job; a later one gets the cached result.

    uvicorn thumbnails:app &                       # enqueues and waits
    pgjq worker thumbnails:queue --processes 2 &   # makes thumbnails
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

# MessagePack stores bytes unchanged; in JSON they would be a third longer. For images of more than some megabytes, use
# a file or an object store, and put the address into the payload.
queue = pgjq.AsyncQueue(
    "thumbnails",
    storage=storage,
    payload_serde=pgjq.MsgpackSerde(),
    result_serde=pgjq.MsgpackSerde(),
    concurrency=2,
    result_ttl=600,  # For ten minutes the same request gets the stored result, and nothing runs.
)

# --- the web application: enqueues and waits


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
    """Close the storage's connections of this event loop when the application ends."""
    async with pgjq.AsyncClient(storage):
        yield


app = FastAPI(title="Thumbnails", lifespan=lifespan)


@app.post("/thumbnail")
async def thumbnail(
    request: Request,
    size: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Make a thumbnail of the image in the request's body."""
    try:
        handle = await make_thumbnail.enqueue(await request.body(), size)
        answer = await handle.result(timeout=20)
    except pgjq.JobFailedError as error:
        raise HTTPException(422, error.original_error.message) from error
    except pgjq.TimeoutError as error:  # The job continues: a second request may find its result.
        raise HTTPException(503, str(error), headers={"Retry-After": "5"}) from error
    return Response(answer, media_type="image/png")


# --- the worker: makes thumbnails


# Equal content has an equal id, so requests for the same image join one job.
@queue.task(id=lambda image, size: pgjq.content_id({"image": image, "size": size}))
async def make_thumbnail(image: bytes, size: int) -> bytes:
    """Decode and shrink on a thread, so that the worker's event loop stays free."""
    try:
        return await asyncio.to_thread(shrink, image, size)
    except UnidentifiedImageError as error:
        raise pgjq.Discard("this is not an image") from error  # A retry would not help.


def shrink(data: bytes, size: int) -> bytes:
    """Fit an image into a square."""
    with Image.open(BytesIO(data)) as image:
        image.thumbnail((size, size))
        out = BytesIO()
        image.save(out, format="PNG")
    return out.getvalue()
