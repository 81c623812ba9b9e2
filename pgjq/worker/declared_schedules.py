"""Add or update the schedules that the code of a worker declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.schedules.schedule import OWN_VALUES, Payload, change, define, same_definition

if TYPE_CHECKING:
    from pgjq.schedules.schedule import Declared, Schedule
    from pgjq.storage.schedules import ScheduleOperations


async def ensure(ops: ScheduleOperations, declared: Declared) -> None:
    """Create or change a schedule; one that is defined alike keeps its next run."""
    while True:
        name, queue, payload, values = declared
        wanted = define(name, queue, payload, await ops.storage_time(), values)
        found = await ops.schedules(name)
        if not found:
            if await ops.put_schedule(wanted, revision=None):
                return
        elif same_definition(found[0], wanted) or await _replace(ops, found[0], wanted):
            return


async def _replace(ops: ScheduleOperations, there: Schedule, wanted: Schedule) -> bool:
    values = {name: getattr(wanted, name) for name in OWN_VALUES}
    options = dict.fromkeys(there.options) | dict(wanted.options)
    payload = Payload(wanted.payload, wanted.task)
    new = change(there, payload, wanted.changed_at, {"queue": wanted.queue, **values, **options})
    return await ops.put_schedule(new, revision=there.revision)
