"""What the commands for side by side and growth write; and pgjq as a contender, on a server of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.curves.plot import Panel, draw
from benchmarks.peers.report import Table

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_has_medians_spreads_versions_settings_and_who_is_left_out() -> None:
    table = Table()
    table.add("pgjq", "0.1", "defaults")
    table.add("other", "2.0", "its best")
    for value in (3.0, 1.0, 2.0):
        table.record("pgjq", "bulk (jobs/s)", value)
    table.leave_out("third", "npm could not install it")
    page = table.markdown("--quick", "peers.svg")
    assert "make bench-peers PEERS_ARGS='--quick'" in page
    assert "| bulk (jobs/s) | 2.0 (1.0 to 3.0) | - |" in page
    assert "| other | 2.0 | its best |" in page
    assert "- third is left out: npm could not install it" in page
    assert "](peers.svg)" in page
    assert len(ET.fromstring(table.chart()).findall(f"{SVG}rect")) == 1  # noqa: S314


def test_a_growth_chart_has_every_curve_and_point() -> None:
    panel = Panel("Drain", "jobs", "jobs/s")
    for size in (1_000, 10_000, 1_000_000):
        panel.add("one", size, size / 7)
        panel.add("two", size, 0.5)
    panel = Panel(**json.loads(json.dumps(panel.__dict__)))  # As kept between two runs.
    image = ET.fromstring(draw([panel], "a < b"))  # noqa: S314
    assert len(image.findall(f".//{SVG}polyline")) == 2
    assert len(image.findall(f".//{SVG}circle")) == 6
    assert "| two | 0.50 | 0.50 | 0.50 |" in panel.markdown()


@pytest.mark.slow
def test_pgjq_is_a_contender_that_runs(tmp_path: Path) -> None:
    arguments = ("--quick", "--peer", "pgjq", "--output", str(tmp_path / "page"))
    command = (sys.executable, "-m", "benchmarks.peers", *arguments)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.md").read_text()
    for measure in ("bulk enqueue", "drain, plain function", "pickup, p50", "request and response", "idle: memory"):
        assert f"| {measure}" in page
    assert "not finished" not in page
