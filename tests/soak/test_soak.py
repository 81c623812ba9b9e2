"""The short form of `make soak`, and what it would say of curves that rise."""

from __future__ import annotations

from contextlib import closing
from xml.etree import ElementTree as ET

from tests.soak.chart import draw
from tests.soak.run import Soak
from tests.soak.samples import LIMITS, Samples


def test_a_fleet_loses_nothing_and_nothing_grows() -> None:
    with closing(Soak()) as soak:
        result = soak.play(12.0, samples=24, kills=4)
    assert result.wrong == [], result.verdict
    assert result.acknowledged > 100
    assert result.answers > 5


def test_a_curve_that_rises_is_named() -> None:
    for name in LIMITS:
        samples = Samples()
        samples.curves = {each: [100.0] * 40 for each in LIMITS}
        assert samples.rising() == []
        samples.curves[name] = [100.0 * 1.05**n for n in range(40)]
        assert [story.split(" rose")[0] for story in samples.rising()] == [name]


def test_the_chart_is_valid_and_has_every_curve() -> None:
    image = ET.fromstring(draw("a < b", [0.0, 1.0], {name: [0.0, 5.0] for name in LIMITS}))  # noqa: S314
    assert len(image.findall("{http://www.w3.org/2000/svg}path")) == len(LIMITS)
