"""Findings as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.measure import Finding, Unit

STYLES = {"met": "green", "missed": "bold red", "no target": "dim"}


def table(title: str, findings: Iterable[Finding]) -> Table:
    """Lay findings out, one a row."""
    laid = Table(title=title, title_justify="left")
    laid.add_column("measured", overflow="fold")
    laid.add_column("against", overflow="fold")
    for heading in ("pgjq", "other", "ratio", "half of the rounds", "target"):
        laid.add_column(heading, justify="right", no_wrap=True)
    laid.add_column("verdict")
    for finding in findings:
        laid.add_row(*_cells(finding))
    return laid


def _cells(finding: Finding) -> tuple[str, ...]:
    low, high = finding.middle_half
    style = STYLES[finding.verdict]
    return (
        finding.what,
        finding.against,
        _figure(finding.ours, finding.unit),
        _figure(finding.theirs, finding.unit),
        f"{finding.ratio:.2f}",
        f"{low:.2f} to {high:.2f}",
        "" if finding.target is None else str(finding.target),
        f"[{style}]{finding.verdict}[/]",
    )


def _figure(value: float, unit: Unit) -> str:
    return f"{value:,.0f} {unit}" if unit == "jobs/s" else f"{value:,.2f} {unit}"
