"""The report: whole, by itself, and safe whatever the names in it try."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pgjq
from pgjq.cli import main
from pgjq.spark.pipeline.lake import Lake, Manifest
from pgjq.spark.report.forecast import forecast
from pgjq.spark.report.formatting import between, count, duration, share
from pgjq.spark.report.layout import number
from pgjq.spark.report.page import Report
from pgjq.spark.report.page import write_page as write_report
from pgjq.spark.report.report_data import SLOTS, Figures, average_hours, largest
from pgjq.spark.report.slo import objectives, read_targets
from pgjq.spark.report.svg import nice_ceiling
from pgjq.web.pages import PAGES
from pgjq.web.query import given as given_fields
from pgjq.web.query import search_of

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "<script>alert(1)</script>\"'&</title></svg><img src=x onerror=alert(1)>"
EMPTY = {"br", "img", "meta", "input", "link"}


def write_page(figures: Figures, **options: Any) -> str:
    return write_report(Report(figures, **options))


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
        "grain": "hour",
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
    titles = ("Throughput", "Anomalies", "Latency", "Failures by error", "Stalls by worker", "Heat map", "Advice")
    for title in (*titles, "Targets", "Backlog", "Forecast", "What if"):
        assert title in reader.text
    assert "run time, p95 above its band" in reader.text
    assert "12.5 s" in reader.text
    assert page.count("<svg") == 5 + 5  # Of everything, and of the last seven days.


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


def many_days(failed: int, days: int = 35, *, mondays: int = 100, name: str = "mail") -> Figures:
    """Each Monday as many jobs, and ten on other days; on the last seven days some of them fail."""
    dates = [date(2026, 1, 1) + timedelta(days=n) for n in range(days)]
    counts = {one: mondays if one.weekday() == 0 else 10 for one in dates}
    rows = {
        one: day(ended=n, completed=n - lost, failed=lost)
        for one, n in counts.items()
        for lost in (failed if one in dates[-7:] else 0,)
    }
    totals = {name: sum(row[name] for row in rows.values()) for name in ("ended", "completed", "failed", "cancelled")}
    return figures(name, dates=dates, days={name: rows}, totals=totals, anomalies=[], advice=[], stalls=[])


def test_a_missed_target_is_the_first_thing_to_do_with_its_command_and_its_jobs() -> None:
    page = write_page(many_days(failed=1), web="https://jobs.example.com/")
    verdict = page[page.index('class="verdict"') : page.index('class="controls"')]
    assert "One thing to do today" in verdict
    assert "<pre>pgjq jobs find --queue mail --state failed</pre>" in verdict
    assert 'href="https://jobs.example.com/jobs?queue=mail&amp;state=failed&amp;ended_after=2026-01-29' in verdict
    quiet = write_page(many_days(failed=0))
    assert "Nothing to do today" in quiet
    assert "href=" not in quiet


def test_every_finding_has_a_command_that_runs_and_a_page_that_exists() -> None:
    name = 'it\'s "odd"'
    whole = many_days(failed=1, name=name)
    soon = datetime.combine(whole.dates[-2], datetime.min.time(), UTC)
    given = figures(name)
    advice = given.advice[0] | {
        "backlog": 500, "backlog_age": 4000.0,
        "disagrees": ["expire_in_seconds is 1: make it 60", "a lease is 30 s: it needs visibility_timeout=4"],
    }  # fmt: skip
    anomaly = given.anomalies[0] | {"begins": soon, "ends": soon + timedelta(hours=3)}
    whole = replace(whole, advice=[advice], anomalies=[anomaly], stalls=[("worker-1", name, 20, 5)])
    findings = Report(whole).findings()
    assert [one.urgency for one in findings] == sorted((one.urgency for one in findings), reverse=True)
    assert len(findings) == 6
    pages = {path.removeprefix("/") for path in PAGES}
    for one in findings:
        program, *words = shlex.split(one.command)
        parse(words)
        path, _, asked = one.page.partition("?")
        fields = dict(parse_qsl(asked))
        assert (program, path in pages, one.queue) == ("pgjq", True, name)
        if path == "jobs":
            assert given_fields(fields) == fields
            search_of(fields)


def parse(words: list[str]) -> None:
    """Read a command line as the program does, without running it."""
    command: click.Command | None = main
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert command is not None
    command.make_context(command.name, words)


def test_burn_rates_are_failures_over_what_may_fail() -> None:
    (mail,) = objectives(many_days(failed=1), read_targets(["mail=95"]))
    assert mail.burns[7] == pytest.approx(7 / 160 / 0.05)
    assert (mail.is_missed, mail.burns[1]) == (False, pytest.approx(0.1 / 0.05))
    (mail,) = objectives(many_days(failed=1), read_targets(["*=99.9"]))
    assert (mail.is_missed, mail.left < 0) == (True, True)
    for wrong in ("mail", "mail=", "=99", "mail=100", "mail=x"):
        with pytest.raises(pgjq.ValidationError, match=r"such as mail=99\.9"):
            read_targets([wrong])
    with pytest.raises(pgjq.ValidationError, match="names the queue 'mial'"):
        objectives(many_days(failed=1), read_targets(["mial=99"]))


def test_a_forecast_knows_weekdays_and_how_wrong_it_was() -> None:
    dates = [date(2026, 1, 1) + timedelta(days=n) for n in range(35)]
    regular = {one: 100 if one.weekday() == 0 else 10 for one in dates}
    ahead = forecast(regular, dates)
    assert ahead is not None
    assert (ahead.total, ahead.error) == (160.0, 0.0)
    assert [value for one, value in ahead.days.items() if one.weekday() == 0] == [100.0]
    doubled = regular | {one: 2 * regular[one] for one in dates[-7:]}
    ahead = forecast(doubled, dates)
    assert ahead is not None
    assert ahead.error == pytest.approx(0.5)
    assert forecast(regular, dates[:13]) is None


def test_a_range_has_its_own_figures_and_is_compared_with_the_days_before_it() -> None:
    whole = many_days(failed=1)
    week = whole.last(7)
    assert (len(week.dates), week.totals["failed"], week.totals["ended"]) == (7, 7, 160)
    assert whole.last(7, before=7).totals["failed"] == 0
    page = write_page(whole)
    assert page.count('class="range ') == 3
    assert "0 in the period before" in page
    assert "+0% on the period before" in page
    assert "body:has(#r1:checked) .range:not(.r1){display:none}" in page
    assert 'body:has(#q0:checked) [data-q]:not([data-q="0"]){display:none}' in page


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
    assert [number(n) for n in (0, 0.025, 0.4, 1.5, 12.3, 12_345)] == ["0", "0.025", "0.4", "1.5", "12", "12,345"]
    assert share(0.01234) == "1.23 %"
    assert between("ended", 0, 52) == "0 to 52 / h"
    assert between("run_p95", 0.342, 2.43) == "342 ms to 2.43 s"
    assert [nice_ceiling(n) for n in (0, 1, 1.2, 17, 999, 1001)] == [1, 1, 1.5, 20, 1000, 1500]
