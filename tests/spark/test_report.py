"""The report: whole, by itself, and safe whatever the names in it try."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgjq.spark.pipeline.lake import Lake, Manifest
from pgjq.spark.report.figures import SLOTS, Figures, average_hours, largest
from pgjq.spark.report.page import write_page
from pgjq.spark.report.svg import nice_ceiling
from pgjq.spark.report.wording import between, count, duration, share

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert(1)</script>\"'&</title></svg><img src=x onerror=alert(1)>"
EMPTY = {"br", "img", "meta", "input", "link"}


class Reader(HTMLParser):
    """Reads a page, and sees that whatever is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def day(**values: Any) -> dict[str, Any]:
    latencies = {f"{kind}_{name}": 0.5 for kind in ("run", "wait") for name in ("p50", "p95", "p99")}
    return {"ended": 10, "completed": 9, "failed": 1, "cancelled": 0, **latencies, **values}


def figures(name: str, **values: Any) -> Figures:
    dates = [date(2026, 1, 1) + timedelta(days=n) for n in range(9)]
    begins = datetime(2026, 1, 2, 10, tzinfo=UTC)
    anomaly = {
        "queue": name, "task": name, "measure": "run_p95", "side": "above", "begins": begins,
        "ends": begins + timedelta(hours=2), "value": 12.5, "usual": 2.0, "low": 1.0, "high": 3.0, "score": 9.0,
    }  # fmt: skip
    advice = {
        "queue": name, "run_p50": 1.0, "run_p95": 2.0, "run_p99": 3.0, "visibility_timeout": 4.0,
        "heartbeat_seconds": 30.0, "current_heartbeat_seconds": None, "expire_in_seconds": 60.0,
        "current_expire_in_seconds": 900.0,
        "concurrency": 3, "backlog": 5, "backlog_age": 61.0, "disagrees": [name],
    }  # fmt: skip
    given: dict[str, Any] = {
        "dates": dates,
        "queues": [name],
        "days": {name: {dates[0]: day(), dates[2]: day(run_p50=None), dates[8]: day()}},
        "errors": {name: {dates[0]: 3}},
        "stalls": [(name, name, 2, 5)],
        "heat": {name: [1.0] * SLOTS},
        "advice": [advice],
        "anomalies": [anomaly],
        "totals": {"ended": 30, "completed": 27, "failed": 3, "cancelled": 0},
    }
    return Figures(**(given | values))


def test_a_page_has_every_chart_and_table() -> None:
    page = write_page(figures("mail"))
    reader = read(page)
    for title in ("Throughput", "Anomalies", "Latency", "Failures by error", "Stalls by worker", "Heat map", "Advice"):
        assert title in reader.text
    assert "run time, p95 above its band" in reader.text
    assert "12.5 s" in reader.text
    assert page.count("<svg") == 4


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    page = write_page(figures("mail"))
    assert not re.search(r"https?:|url\(|@import|src=|href=", page)
    assert "default-src 'none'" in page
    assert "script" not in read(page).tags


def test_hostile_names_are_text_and_nothing_else() -> None:
    page = write_page(figures(HOSTILE))
    reader, harmless = read(page), read(write_page(figures("mail")))
    assert reader.tags == harmless.tags
    assert reader.attributes == harmless.attributes
    assert HOSTILE in reader.text


def test_a_quiet_lake_has_a_page_too() -> None:
    reader = read(write_page(figures("mail", anomalies=[], errors={}, stalls=[], advice=[])))
    for said in ("No hour left its band", "Nothing failed", "No job stalled", "Too few completed runs"):
        assert said in reader.text


def test_a_day_by_itself_is_drawn() -> None:
    first = date(2026, 1, 1)
    page = write_page(figures("mail", dates=[first], days={"mail": {first: day()}}, errors={"Boom": {first: 1}}))
    assert page.count('<rect fill="var(--c0)"') == 2
    assert not re.search(r'points="([\d.]+),[\d.]+ \1,[\d.]+"', page)  # A shape without any width.


def test_an_average_hour_is_of_as_many_mondays_as_there_were(tmp_path: Path) -> None:
    """From a Monday to the next one, with ten endings at noon of every day."""
    dates = [date(2026, 1, 5) + timedelta(days=n) for n in range(8)]
    manifest = Manifest(batches=(), days={str(one): "run=1" for one in dates}, whole="run=1", runs=1)
    for one in dates:
        place = tmp_path / "metrics" / "run=1" / f"date={one}"
        place.mkdir(parents=True)
        noon = datetime(one.year, one.month, one.day, 12, tzinfo=UTC)
        pq.write_table(pa.table({"queue": ["mail"], "hour": [noon], "ended": [10]}), place / "part.parquet")
    heat = average_hours(Lake(tmp_path, manifest), dates)
    assert heat["mail"] == [10.0 if slot % 24 == 12 else 0.0 for slot in range(SLOTS)]


def test_small_series_are_one_series_together() -> None:
    first = date(2026, 1, 1)
    counts = {f"q{n}": {first: n} for n in range(10)}
    kept = largest(counts, 7)
    assert list(kept) == ["q9", "q8", "q7", "q6", "q5", "q4", "q3", "others"]
    assert kept["others"] == {first: 0 + 1 + 2}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "\N{EN DASH}"), (0.0, "0 ms"), (0.2234, "223 ms"), (59.94, "59.9 s"), (90, "1.5 min"), (86400 * 3, "3 d")],
)
def test_durations_are_written_in_the_unit_that_fits(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


def test_numbers_are_short() -> None:
    assert [count(n) for n in (0, 9_999, 12_345, 1_234_567)] == ["0", "9,999", "12.3 k", "1.23 M"]
    assert share(0.01234) == "1.23 %"
    assert between("ended", 0, 52) == "0 to 52 / h"
    assert between("run_p95", 0.342, 2.43) == "342 ms to 2.43 s"
    assert [nice_ceiling(n) for n in (0, 1, 1.2, 17, 999, 1001)] == [1, 1, 1.5, 20, 1000, 1500]
