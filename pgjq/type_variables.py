"""Type variables of queues, jobs and serdes.

Without a type argument each is Any: `Queue` is `Queue[Any, Any]`.
"""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 13):
    from typing import TypeVar
else:
    from typing_extensions import TypeVar

Payload = TypeVar("Payload", default=Any)
Result = TypeVar("Result", default=Any)
Value = TypeVar("Value", default=Any)

# For values that are only read: a `Job[Invoice]` is a `Job[Document]`.
Payload_co = TypeVar("Payload_co", covariant=True, default=Any)
Result_co = TypeVar("Result_co", covariant=True, default=Any)
# For callbacks that are only called with it.
Result_contra = TypeVar("Result_contra", contravariant=True, default=Any)
