"""Arrow and ADBC, which come without types: what is theirs is Any, and is so here and nowhere else."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pgjq.errors import MissingExtraError

try:
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    adbc: Any = import_module("adbc_driver_postgresql.dbapi")
    adbc_options: Any = import_module("adbc_driver_postgresql").StatementOptions
    to_arrow_schema: Any = import_module("pyspark.sql.pandas.types").to_arrow_schema
except ImportError as error:
    raise MissingExtraError("spark") from error
