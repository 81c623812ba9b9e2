"""Ending tasks: one that loses a cancellation ends all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgjq.worker import loops

if TYPE_CHECKING:
    import pytest


def test_a_task_that_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "CANCEL_AGAIN", 0.01)
    lost: list[int] = []

    async def forgetful() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if len(lost) == 2:
                    raise
                lost.append(1)

    async def end_it() -> bool:
        task = asyncio.create_task(forgetful())
        await asyncio.sleep(0)
        await loops.cancel(task)
        return task.cancelled()

    assert asyncio.run(end_it())
    assert len(lost) == 2
