"""Read metrics as Prometheus does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from pgjq.prometheus import exposition

if TYPE_CHECKING:
    from collections.abc import Mapping

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Samples:
    """Return the samples of an exposition by name and labels."""
    families = text_string_to_metric_families(text)
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def read(samples: Samples, name: str, /, **labels: str) -> float:
    """Return one sample."""
    return samples[name, frozenset(labels.items())]


def labelled(samples: Samples, name: str, label: str) -> set[str]:
    """Return the values of a label."""
    found: list[Mapping[str, str]] = [dict(labels) for each, labels in samples if each == name]
    return {labels[label] for labels in found}


def scrape(*collectors: Any) -> Samples:
    """Return the samples of collectors."""
    return parse(exposition(*collectors)[1].decode())


def get(port: int, path: str = "/metrics") -> str:
    """Return a page of this machine."""
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return answer.read().decode()
