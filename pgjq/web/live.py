"""Live updates: a stream of server-sent events that says when something may have changed.

The browser then fetches its page again and replaces the parts that differ. The storage is asked at most once in
`INTERVAL` seconds for all open pages, by one cheap statement; job events are not subscribed to, because they cost
every change of a job. At most `MOST` pages follow at once; further ones show what was when they were made.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING, Final

from starlette.responses import Response, StreamingResponse

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
MOST: Final = 100  # Streams at once.
LONGEST: Final = 600  # Events of one stream; then the browser connects again, and shows that it may.


class Live:
    """The streams of one application."""

    def __init__(self, inspection: Inspection) -> None:
        self.open = 0
        self._inspection = inspection
        self._read_at = -inf
        self._mark = ""

    async def mark(self) -> str:
        """Return a text that changes with the jobs, read once in `INTERVAL` for all streams."""
        now = time.monotonic()
        if now - self._read_at >= INTERVAL:
            self._read_at = now
            try:
                self._mark = await self._inspection.mark()
            except PgjqError:
                self._mark = "unknown"
        return self._mark


async def events(web: Web, request: Request, visitor: Visitor) -> Response:
    """Return the stream."""
    del visitor
    if web.live.open >= MOST:
        return Response("too many pages are open\n", 503, {"retry-after": "60"}, "text/plain")
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_stream(web.live, request.app.state), media_type="text/event-stream", headers=headers)


async def _stream(live: Live, state: State) -> AsyncGenerator[str]:
    live.open += 1
    try:
        before = ""
        yield "retry: 3000\n\n"
        for _ in range(LONGEST):
            now = await live.mark()
            yield ": nothing\n\n" if now == before else "event: change\ndata: now\n\n"
            before = now
            for _ in range(PARTS):
                await asyncio.sleep(INTERVAL / PARTS)
                if getattr(state, "stopping", False):  # `pgjq web` says so; a stream never ends by itself.
                    return
    finally:
        live.open -= 1
