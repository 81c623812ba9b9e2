"""Live updates: a stream of server-sent events that says when something may have changed.

The browser then fetches its page again and replaces the parts that differ. The storage is asked at most once in
`INTERVAL` seconds for each open page, by one cheap statement; job events are not subscribed to, because they cost
every change of a job.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.datastructures import State
    from starlette.requests import Request

    from pgjq.storage.inspection import Inspection
    from pgjq.web.access import Visitor
    from pgjq.web.app import Web

INTERVAL: Final = 2.0
PARTS: Final = 8
LONGEST: Final = 600  # Events of one stream; then the browser connects again, and shows that it may.


async def events(web: Web, request: Request, visitor: Visitor) -> StreamingResponse:
    """Return the stream."""
    del visitor
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(
        _stream(web.inspection, request.app.state), media_type="text/event-stream", headers=headers
    )


async def _stream(inspection: Inspection, state: State) -> AsyncGenerator[str]:
    before = ""
    yield "retry: 3000\n\n"
    for _ in range(LONGEST):
        now = await _mark(inspection)
        yield ": nothing\n\n" if now == before else "event: change\ndata: now\n\n"
        before = now
        for _ in range(PARTS):
            await asyncio.sleep(INTERVAL / PARTS)
            if getattr(state, "stopping", False):  # `pgjq web` says so; a stream never ends by itself.
                return


async def _mark(inspection: Inspection) -> str:
    try:
        return await inspection.mark()
    except PgjqError:
        return "unknown"
