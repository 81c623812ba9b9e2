"""Do what a person confirmed with a key, and write it down as the web page does."""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING

from pgjq.errors import PgjqError, PolicyError

if TYPE_CHECKING:
    from pgjq.cli.top.model import Action
    from pgjq.client import AsyncClient
    from pgjq.storage.inspection import Inspection


async def act(client: AsyncClient, inspection: Inspection, action: Action) -> str:
    """Do it, and return a sentence that says what came of it."""
    try:
        return await _act(client, inspection, action)
    except PgjqError as error:
        return f"not done: {error}"


async def _act(client: AsyncClient, inspection: Inspection, action: Action) -> str:
    if action.name not in (await inspection.rights()).actions:
        raise PolicyError("the storage, or its login, does not allow it")
    ids = [] if action.job_id is None else [action.job_id]
    number = await inspection.begin_action(actor(), action.name, action.queue, ids)
    count = 0
    try:
        outcome = await _do(client, action)
        count = len(ids)
    finally:
        await inspection.end_action(number, count)
    return outcome


async def _do(client: AsyncClient, action: Action) -> str:
    job_id = action.job_id or ""
    match action.name:
        case "pause":
            await client.pause_queue(action.queue)
            return f"queue {action.queue} is paused; running jobs go on"
        case "resume":
            await client.resume_queue(action.queue)
            return f"queue {action.queue} is resumed"
        case "retry":
            return f"job {job_id} is {(await client.retry(action.queue, job_id)).state}"
        case "cancel":
            status = (await client.cancel(action.queue, job_id, active=True)).status
            if status not in ("cancelled", "processing"):
                raise PolicyError(f"job {job_id} cannot be cancelled: {status}")
            return f"job {job_id} is cancelled" if status == "cancelled" else f"job {job_id} is asked to stop"


def actor() -> str:
    """Return who sits at this terminal, for the record of actions."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # A user without a name, as in containers.
        name = "unknown"
    return f"top ({name}@{socket.gethostname()})"
