"""Play many seeds, and describe the scenario of each that storages answer differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.storage_comparison.compare import play
from tests.storage_comparison.shrink import report, shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.storage_comparison.steps import Scenario
    from tests.storage_comparison.subject import Subject


def differences(scenario: Scenario, subjects: Sequence[Subject], seed: int | None = None) -> str | None:
    """Play a scenario; if storages differ, shrink it on those that do, and describe it."""
    if (difference := play(scenario, subjects)) is None:
        return None
    reference = next(iter(difference.answers.values()))
    odd = {name for name, answer in difference.answers.items() if answer != reference}
    suspects = [p for p in subjects if p is subjects[0] or p.name in odd]
    shorter = shrink(scenario, lambda s: play(s, suspects) is not None)
    if (shown := play(shorter, subjects)) is None:
        return f"seed {seed} differs now and then\n{report(seed, scenario, difference)}"
    return report(seed, shorter, shown)
