"""The contract of a storage as a test suite.

Subclass `StorageConformance` in your test module, with two fixtures: `storage`, a fresh and empty one for each test,
and `clock`, which moves the storage's time (`pgjq.testing.clock`). Every case then runs in sync and in async mode. The
cases test behaviour only. A subclass whose storage lacks some capabilities says so with
`capabilities = MyStorage.capabilities`: pytest then collects only the cases that apply.
"""

from __future__ import annotations

from pgjq.testing.storage.attempts import Attempts
from pgjq.testing.storage.busy_keys import BusyKeys
from pgjq.testing.storage.claiming import Claiming
from pgjq.testing.storage.dead_letters import DeadLetters
from pgjq.testing.storage.defining import Defining
from pgjq.testing.storage.enqueueing import Enqueueing
from pgjq.testing.storage.inherited_options import InheritedOptions
from pgjq.testing.storage.leasing import Leasing
from pgjq.testing.storage.managing import Managing
from pgjq.testing.storage.policies import Policies
from pgjq.testing.storage.reaping import Reaping
from pgjq.testing.storage.releasing_and_rescheduling import Steering
from pgjq.testing.storage.settling import Settling
from pgjq.testing.storage.strict_order import StrictOrder
from pgjq.testing.storage.subscribing import Subscribing
from pgjq.testing.storage.time_slots import TimeSlots
from pgjq.testing.storage.waiting import Waiting
from pgjq.testing.storage.worker_records import Registering


class StorageConformance(
    Enqueueing,
    Claiming,
    Settling,
    Leasing,
    Reaping,
    Attempts,
    Managing,
    Steering,
    Registering,
    Policies,
    StrictOrder,
    BusyKeys,
    Defining,
    InheritedOptions,
    DeadLetters,
    TimeSlots,
    Subscribing,
    Waiting,
):
    """The complete contract of a storage."""
