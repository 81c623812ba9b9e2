"""Delay before a failed job runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.options import LONGEST

if TYPE_CHECKING:
    from pgjq.options import JobOptions


def retry_delay(options: JobOptions, retry: int, chance: float) -> float:
    """Return the seconds before a retry (1, 2, …); `chance` in [0, 1) is the jitter.

    Without backoff the delay is always `retry_delay`. With it, the delay doubles up to the 16th retry, half of it
    random, up to `retry_delay_max` or a century; an unset `retry_delay` is then 1.
    """
    if not options.retry_backoff:
        return options.retry_delay or 0.0
    half = 2.0 ** min(16, retry) / 2
    ceiling = LONGEST if options.retry_delay_max is None else options.retry_delay_max
    return min(ceiling, (options.retry_delay or 1.0) * (half + half * chance))
