"""Lists of names in one log line: the first ones, and the number of the others."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int) -> tuple[str, str]:
    """Return at most `most` names, and a text for the rest, which may be empty."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]), more
