"""What `make bench-peers` writes: a table in Markdown and a chart in SVG."""

from __future__ import annotations

import os
import platform
import time
from collections import defaultdict
from html import escape
from statistics import median

WIDTH, LABEL, BAR, GAP = 760, 110, 14, 4
STYLE = """text{font:12px sans-serif;fill:#333}rect{fill:#9aa5b1}.own{fill:#2563eb}
@media (prefers-color-scheme:dark){text{fill:#ddd}rect{fill:#6b7684}.own{fill:#7aa5ff}}"""
HEAD = """# Beside other job queues

Written by `make bench-peers PEERS_ARGS='{arguments}'`, which installs the peers and starts the servers.

Median and, in brackets, the lowest and the highest of the samples. Each contender has a process of its own, with the
enqueuer and one worker side by side, and a fresh database on the same PostgreSQL server with its stock settings, or a
Redis without persistence. They take turns. A dash means that the contender has nothing like that, or did not finish.
"""


class Table:
    """Samples by contender and measure."""

    def __init__(self) -> None:
        self._peers: dict[str, tuple[str, str]] = {}
        self._samples: defaultdict[str, dict[str, list[float]]] = defaultdict(dict)
        self._notes: list[str] = []
        self._load = os.getloadavg()[0]

    def add(self, name: str, version: str, settings: str) -> None:
        """Note a contender that runs."""
        self._peers[name] = (version, settings)

    def leave_out(self, name: str, reason: str) -> None:
        """Note one that does not."""
        self.note(f"{name} is left out: {reason}")

    def note(self, text: str) -> None:
        """Add a line below the table."""
        self._notes.append(text)

    def record(self, name: str, what: str, value: float) -> None:
        """Add a sample."""
        self._samples[what].setdefault(name, []).append(value)

    def markdown(self, arguments: str, chart: str) -> str:
        """Return the page; its chart is beside it."""
        names = list(self._peers)
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        load = f"load {self._load:.1f} at the start and {os.getloadavg()[0]:.1f} at the end"
        lines = [
            HEAD.format(arguments=arguments),
            f"{time.strftime('%d %B %Y')}, {machine}, {load}.",
            "",
            f"![Bars for each measure and contender]({chart})",
            "",
            f"| | {' | '.join(names)} |",
            f"|---|{'---:|' * len(names)}",
        ]
        for what, found in self._samples.items():
            lines.append(f"| {what} | {' | '.join(_cell(found.get(name)) for name in names)} |")
        lines += ["", "| contender | version | settings |", "|---|---|---|"]
        lines += [f"| {name} | {version} | {settings} |" for name, (version, settings) in self._peers.items()]
        return "\n".join([*lines, "", *(f"- {note}" for note in self._notes)]) + "\n"

    def chart(self) -> str:
        """Return bars for every measure; each has a scale of its own."""
        parts, y = [], 20
        for what, found in self._samples.items():
            parts.append(f'<text x="0" y="{y}" font-weight="bold">{escape(what)}</text>')
            highest = max((median(values) for values in found.values()), default=0.0) or 1.0
            for name, values in found.items():
                y += BAR + GAP
                length = max(1.0, (WIDTH - LABEL - 90) * median(values) / highest)
                kind = ' class="own"' if name == "pgjq" else ""
                parts.append(
                    f'<text x="{LABEL - 6}" y="{y}" text-anchor="end">{escape(name)}</text>'
                    f'<rect{kind} x="{LABEL}" y="{y - BAR + 3}" width="{length:.0f}" height="{BAR}"/>'
                    f'<text x="{LABEL + length + 5:.0f}" y="{y}">{_number(median(values))}</text>'
                )
            y += 2 * BAR + GAP
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">'
        title = f"<title>pgjq beside other job queues</title><style>{STYLE}</style>"
        return "\n".join([head, title, *parts, "</svg>"]) + "\n"


def _cell(values: list[float] | None) -> str:
    if values is None:
        return "-"
    spread = f" ({_number(min(values))} to {_number(max(values))})" if len(values) > 1 else ""
    return f"{_number(median(values))}{spread}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
