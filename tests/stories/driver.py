"""Play many seeds, and describe the story of each that storages answer differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.stories.compare import play
from tests.stories.shrink import report, shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.stories.player import Player
    from tests.stories.steps import Story


def differences(told: Story, players: Sequence[Player], seed: int | None = None) -> str | None:
    """Play a story; if storages differ, shrink it on those that do, and describe it."""
    if (difference := play(told, players)) is None:
        return None
    reference = next(iter(difference.answers.values()))
    odd = {name for name, answer in difference.answers.items() if answer != reference}
    suspects = [p for p in players if p is players[0] or p.name in odd]
    shorter = shrink(told, lambda s: play(s, suspects) is not None)
    if (shown := play(shorter, players)) is None:
        return f"seed {seed} differs now and then\n{report(seed, told, difference)}"
    return report(seed, shorter, shown)
