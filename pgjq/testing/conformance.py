"""The contract of a storage as a test suite.

Subclass `StorageConformance` in a test module of your own, with two fixtures: `storage`, a fresh and empty one for
each test, and `clock`, which moves the time that it goes by (`pgjq.testing.clock`). Every case then runs twice, in
the blocking and in async mode. The cases speak of behaviour alone. A subclass whose storage does not promise
everything says so with `promises = MyStorage.promises`: cases that do not apply to it are then not collected.
"""

from __future__ import annotations

from pgjq.testing.claiming import Claiming
from pgjq.testing.defining import Defining
from pgjq.testing.enqueueing import Enqueueing
from pgjq.testing.leasing import Leasing
from pgjq.testing.managing import Managing
from pgjq.testing.policies import Policies
from pgjq.testing.reaping import Reaping
from pgjq.testing.registering import Registering
from pgjq.testing.settling import Settling
from pgjq.testing.subscribing import Hearing
from pgjq.testing.waiting import Waiting


class StorageConformance(
    Enqueueing, Claiming, Settling, Leasing, Reaping, Managing, Registering, Policies, Defining, Hearing, Waiting
):
    """Everything that a storage must do."""
