"""Make a scenario that shows a difference as short and as plain as it can be, and write it down."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import datetime, timedelta
from difflib import unified_diff
from pprint import pformat
from typing import TYPE_CHECKING, Any

from pgjq.errors import ValidationError
from pgjq.testing.clock import START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.storage_comparison.compare import Difference
    from tests.storage_comparison.steps import Scenario

PATIENCE = 60.0


def shrink(scenario: Scenario, differs: Callable[[Scenario], bool], patience: float = PATIENCE) -> Scenario:
    """Return the shortest scenario found that still differs: fewer steps first, then plainer ones."""
    until = time.monotonic() + patience
    before = None
    while scenario != before and time.monotonic() < until:
        before = scenario
        for size in _halves(len(scenario.steps)):
            scenario = _without_some(scenario, size, differs, until)
        for number in range(len(scenario.steps)):
            scenario = _plainer_at(scenario, number, differs, until)
    return scenario


def _halves(count: int) -> Iterator[int]:
    while count > 1:
        count //= 2
        yield count


def _without_some(scenario: Scenario, size: int, differs: Callable[[Scenario], bool], until: float) -> Scenario:
    """Leave out each part of that size, from the end, if the rest differs."""
    for end in range(len(scenario.steps), 0, -size):
        start = max(end - size, 0)
        shorter = replace(scenario, steps=scenario.steps[:start] + scenario.steps[end:])
        if time.monotonic() < until and differs(shorter):
            scenario = shorter
    return scenario


def _plainer_at(scenario: Scenario, number: int, differs: Callable[[Scenario], bool], until: float) -> Scenario:
    """Make one step as plain as it can be."""
    found = True
    while found and time.monotonic() < until:
        found = False
        for step in _plainer(scenario.steps[number]):
            plainer = replace(scenario, steps=(*scenario.steps[:number], step, *scenario.steps[number + 1 :]))
            if differs(plainer):
                scenario, found = plainer, True
                break
    return scenario


def _plainer(value: Any) -> Iterator[Any]:
    """Take one thing back that a value says."""
    if isinstance(value, tuple):
        for n, item in enumerate(value):
            if len(value) > 1:
                yield value[:n] + value[n + 1 :]
            yield from ((*value[:n], plainer, *value[n + 1 :]) for plainer in _plainer(item))
    elif isinstance(value, dict):
        for name in value:
            yield {key: kept for key, kept in value.items() if key != name}
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            default, held = _default(f), getattr(value, f.name)
            plain = [default] if default is not MISSING and held != default else []
            for plainer in (*plain, *_plainer(held)):
                with suppress(ValidationError):  # Some values hold together only.
                    yield replace(value, **{f.name: plainer})


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def code(value: Any) -> str:
    """Write a value as Python that makes it again."""
    if isinstance(value, datetime):
        return f"START + timedelta(seconds={(value - START).total_seconds():g})"
    if isinstance(value, timedelta):
        return f"timedelta(seconds={value.total_seconds():g})"
    if isinstance(value, tuple):
        return f"({''.join(f'{code(item)}, ' for item in value).rstrip() or ''})".replace(", )", ",)")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {code(held)}" for name, held in value.items()) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_arguments(value))})"
    return repr(value)


def _arguments(value: Any) -> Iterator[str]:
    for f in fields(value):
        held = getattr(value, f.name)
        if held != _default(f):
            yield f"{f.name}={code(held)}" if _default(f) is not MISSING else code(held)


def report(seed: int | None, scenario: Scenario, difference: Difference) -> str:
    """Describe a difference: its seed, the scenario to paste into a test, and the answers side by side."""
    kept = scenario.steps[: difference.number + 1]
    lines = [f"seed {seed}: step {difference.number} has different answers", "", "Scenario(", "    ("]
    lines += [f"        {code(step)}," for step in kept]
    lines += ["    ),", f"    definitions={scenario.definitions},", f"    mode={scenario.mode!r},", ")", ""]
    reference, *others = difference.answers.items()
    for name, answer in others or [reference]:
        lines += _side_by_side(reference, (name, answer))
    return "\n".join(lines)


def _side_by_side(one: tuple[str, Any], other: tuple[str, Any]) -> list[str]:
    if one[1] == other[1]:
        return [f"{other[0]} answers as {one[0]} does: {one[1][0]!r}"]
    texts = [pformat(answer, width=120, sort_dicts=False).splitlines() for _, answer in (one, other)]
    return list(unified_diff(*texts, one[0], other[0], lineterm="", n=4))
