"""The contract of a storage as a test suite.

Subclass `StorageConformance` in your test module, with two fixtures: `storage`, a fresh and empty one for each test,
and `clock`, which moves the storage's time (`pgjq.testing.clock`). Every case then runs in sync and in async mode. The
cases test behaviour only. A subclass whose storage lacks some capabilities says so with
`capabilities = MyStorage.capabilities`: pytest then collects only the cases that apply.
"""

from __future__ import annotations

from pgjq.testing.busy_keys import BusyKeys
from pgjq.testing.claiming import Claiming
from pgjq.testing.dead_letters import DeadLetters
from pgjq.testing.defining import Defining
from pgjq.testing.enqueueing import Enqueueing
from pgjq.testing.inherited_options import InheritedOptions
from pgjq.testing.leasing import Leasing
from pgjq.testing.managing import Managing
from pgjq.testing.policies import Policies
from pgjq.testing.reaping import Reaping
from pgjq.testing.registering import Registering
from pgjq.testing.settling import Settling
from pgjq.testing.strict_order import StrictOrder
from pgjq.testing.subscribing import Hearing
from pgjq.testing.time_slots import TimeSlots
from pgjq.testing.waiting import Waiting


class StorageConformance(
    Enqueueing,
    Claiming,
    Settling,
    Leasing,
    Reaping,
    Managing,
    Registering,
    Policies,
    StrictOrder,
    BusyKeys,
    Defining,
    InheritedOptions,
    DeadLetters,
    TimeSlots,
    Hearing,
    Waiting,
):
    """The complete contract of a storage."""
