"""Evaluate the part of PromQL that deploy/ uses, over scrapes at some times.

Rates are the difference of the last and the first sample in their range, without extrapolation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.observability.scraping import Samples

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?[smh]?|[a-zA-Z_]\w*|==|=|>|<|\"[^\"]*\"|[(){}\[\],/])")


class History:
    """Samples of several scrapes."""

    def __init__(self) -> None:
        self.series: defaultdict[tuple[str, Labels], list[tuple[float, float]]] = defaultdict(list)
        self.now = 0.0

    def add(self, at: float, samples: Samples, **target: str) -> None:
        """Add a scrape of a target, which has the labels `job` and `instance`."""
        self.now = at
        for (name, labels), value in samples.items():
            self.series[name, labels | frozenset(target.items())].append((at, value))

    def select(self, name: str, wanted: dict[str, str], span: float) -> dict[Labels, list[float]]:
        """Return the samples of matching series within a span before now."""
        return {
            labels: [value for at, value in points if at >= self.now - span]
            for (each, labels), points in self.series.items()
            if each == name and wanted.items() <= dict(labels).items()
        }

    def evaluate(self, query: str) -> Vector:
        """Return what a query answers now."""
        parser = _Parser(TOKEN.findall(query), self)
        assert "".join(parser.tokens) == re.sub(r"\s", "", query), query
        found = parser.conjunction()
        assert not parser.tokens, f"not understood: {parser.tokens}"
        return found


class _Parser:
    def __init__(self, tokens: list[str], history: History) -> None:
        self.tokens = tokens
        self._history = history

    def _take(self, *expected: str) -> str:
        token = self.tokens.pop(0)
        assert not expected or token in expected, f"{token} instead of {expected}"
        return token

    def _next_is(self, *tokens: str) -> bool:
        return bool(self.tokens) and self.tokens[0] in tokens

    def conjunction(self) -> Vector:
        found = self._comparison()
        while self._next_is("and"):
            self._take()
            other = self._comparison()
            found = {labels: value for labels, value in found.items() if labels in other}
        return found

    def _comparison(self) -> Vector:
        found = self._quotient()
        if self._next_is(">", "==", "<"):
            how, limit = self._take(), float(self._take())
            passes = {">": lambda v: v > limit, "<": lambda v: v < limit, "==": lambda v: v == limit}[how]
            found = {labels: value for labels, value in found.items() if passes(value)}
        return found

    def _quotient(self) -> Vector:
        found = self._vector()
        while self._next_is("/"):
            self._take()
            below = self._vector()
            found = {labels: value / below[labels] for labels, value in found.items() if below.get(labels)}
        return found

    def _vector(self) -> Vector:
        name = self._take()
        if name in ("sum", "max"):
            return self._aggregate(name)
        if name in ("rate", "increase", "changes"):
            return self._growth(name)
        if name == "histogram_quantile":
            return self._quantile()
        series = self._history.select(name, self._matchers(), 300)
        return {labels: values[-1] for labels, values in series.items() if values}

    def _aggregate(self, how: str) -> Vector:
        names = self._names() if self._next_is("by") else []
        self._take("(")
        groups: defaultdict[Labels, list[float]] = defaultdict(list)
        for labels, value in self.conjunction().items():
            groups[frozenset((name, of) for name, of in labels if name in names)].append(value)
        self._take(")")
        return {labels: sum(values) if how == "sum" else max(values) for labels, values in groups.items()}

    def _names(self) -> list[str]:
        self._take("by")
        self._take("(")
        names = [self._take()]
        while self._take(",", ")") == ",":
            names.append(self._take())
        return names

    def _growth(self, how: str) -> Vector:
        self._take("(")
        name, wanted = self._take(), self._matchers()
        self._take("[")
        length = self._take()
        self._take("]")
        self._take(")")
        seconds = float(length[:-1]) * {"s": 1, "m": 60, "h": 3600}[length[-1]]
        series = self._history.select(name, wanted, seconds)
        if how == "changes":
            return {labels: float(sum(a != b for a, b in pairwise(values))) for labels, values in series.items()}
        grown = {labels: _growth(values) for labels, values in series.items() if len(values) > 1}
        return {labels: value / (seconds if how == "rate" else 1) for labels, value in grown.items()}

    def _matchers(self) -> dict[str, str]:
        wanted: dict[str, str] = {}
        if self._next_is("{"):
            while self._take() != "}":
                name = self._take()
                self._take("=")
                wanted[name] = self._take().strip('"')
        return wanted

    def _quantile(self) -> Vector:
        self._take("(")
        share = float(self._take())
        self._take(",")
        buckets: defaultdict[Labels, list[tuple[float, float]]] = defaultdict(list)
        for labels, value in self.conjunction().items():
            bound = float(dict(labels)["le"].replace("+Inf", "inf"))
            buckets[frozenset(label for label in labels if label[0] != "le")].append((bound, value))
        self._take(")")
        return {labels: _quantile(share, sorted(found)) for labels, found in buckets.items()}


def _growth(values: Iterable[float]) -> float:
    return sum(after - before if after >= before else after for before, after in pairwise(values))


def _quantile(share: float, buckets: list[tuple[float, float]]) -> float:
    """Return the upper bound of the bucket; of the last one, as Prometheus does, the lower."""
    total = buckets[-1][1]
    return next((bound for bound, count in buckets[:-1] if count >= share * total), buckets[-2][0])
