"""Names in one line of the log: the first of them, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int) -> tuple[str, str]:
    """At most so many of the names, and what stands behind them for the rest: empty where there is none."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]), more
