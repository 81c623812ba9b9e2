"""Arrow and ADBC, imported on first use and untyped: only here they are Any.

Spark plans each query in several processes of their own, which need none of them and would take half a second longer
each.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pgjq.errors import MissingExtraError


class _Later:
    """A module that is imported on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            module = import_module(self._name)
        except ImportError as error:
            raise MissingExtraError("spark") from error
        return getattr(module, attribute)


pa: Any = _Later("pyarrow")
pc: Any = _Later("pyarrow.compute")
adbc: Any = _Later("adbc_driver_manager")
adbc_postgresql: Any = _Later("adbc_driver_postgresql")
spark_types: Any = _Later("pyspark.sql.pandas.types")
