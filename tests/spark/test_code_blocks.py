"""The Python on the pages about Spark, run as it stands there; tests/docs runs that of all others."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from psycopg.conninfo import conninfo_to_dict

import pgjq
from tests.docs.pages import ROOT, blocks
from tests.docs.test_code_blocks import parts, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("delta_runtime")
@pytest.mark.parametrize("page", ["spark", "pipeline"])
def test_the_code_on_a_page_runs(
    page: str, spark: SparkSession, empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql:///?" + urlencode(conninfo_to_dict(empty_database))
    pgjq.migrate(url)
    with pgjq.Client(pgjq.PostgresStorage(url)) as client:
        client.enqueue("thumbnails", "cat", {"path": "cat.png"})
        client.enqueue("mail", "one", 1)
        client.cancel("mail", "one")
    monkeypatch.setenv("PGJQ_URL", url)
    names: dict[str, Any] = {
        "__name__": "__main__",  # What is defined there is sent to executors whole.
        "url": url,
        "spark": spark,
        "orders": spark.createDataFrame([("o1", 3.5), ("o2", 4.5)], "order_id string, total double"),
        "stream": _stream(spark, tmp_path),
        "make_thumbnail": str.upper,
    }
    places = {"postgresql://host/database": url, "/lake": str(tmp_path), "tasks=64": "tasks=2"}
    write_deltalake(str(tmp_path / "delta" / "jobs"), pa.table({"id": ["one"]}))
    places["s3://warehouse/jobs"] = str(tmp_path / "delta")
    storage = pgjq.PostgresStorage(url)
    worker = pgjq.Queue("resize", storage=storage)  # For the page's jobs whose results it waits for.
    worker.execute(lambda job: job.payload["path"])
    with closing(storage), worker:
        for block in parts(ROOT / "docs" / f"{page}.md"):
            run(block, names, places)
            for query in spark.streams.active:
                query.processAllAvailable()
                query.stop()
    if page == "spark":
        with pgjq.Client(pgjq.PostgresStorage(url)) as client:
            assert client.get_queue_stats("invoices").queued == 3
            assert client.get_result("thumbnails", "cat") == "CAT.PNG"
        assert spark.read.parquet(str(tmp_path / "jobs")).count() == 1


def test_five_minutes_begin_with_all_the_extras_that_their_commands_need() -> None:
    (block,) = [block.text for block in blocks(ROOT / "docs" / "spark.md", "sh") if "pipeline demo" in block.text]
    (extras,) = re.findall(r'pip install "pgjq\[(.+)\]"', block)
    needed = {"pgjq pipeline": "spark", "pipeline demo": "embedded", "--delta": "delta"}
    assert {extra for words, extra in needed.items() if words in block} <= set(extras.split(","))


def _stream(spark: SparkSession, place: Path) -> Any:
    """Orders that come in, one of them."""
    (place / "incoming").mkdir()
    (place / "incoming" / "one.json").write_text('{"id": "o3", "payload": "{}"}\n')
    return spark.readStream.schema("id string, payload string").json(str(place / "incoming"))
