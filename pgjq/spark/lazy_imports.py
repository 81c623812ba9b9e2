"""Arrow, ADBC and NumPy, which come without types: what is theirs is Any, and is so here and nowhere else.

They are imported when something of theirs is used. Spark plans in processes of their own, several for each query, which
need none of it, and would take half a second longer each.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pgjq.errors import MissingExtraError


class _Later:
    """A module that is imported when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            module = import_module(self._name)
        except ImportError as error:
            raise MissingExtraError("spark") from error
        return getattr(module, attribute)


np: Any = _Later("numpy")
pa: Any = _Later("pyarrow")
pc: Any = _Later("pyarrow.compute")
adbc: Any = _Later("adbc_driver_manager")
adbc_postgresql: Any = _Later("adbc_driver_postgresql")
spark_types: Any = _Later("pyspark.sql.pandas.types")
