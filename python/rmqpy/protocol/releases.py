"""Releases of RocketMQ by the numbers that clients report.

The numbers are places in a list of RocketMQ's. From 4.0.0 on it has every release up to 5.9.9, each after its snapshot.
"""

from typing import Final

#: The numbers of 4.0.0 and 5.9.9.
_FIRST: Final = 213
_LAST: Final = 611


def release(number: int) -> str:
    """Return the release with this number, such as `5.1.2` for 437; an older or unknown number as it is."""
    if not _FIRST <= number <= _LAST:
        return str(number)
    place, is_release = divmod(number - _FIRST + 1, 2)
    name = f"{4 + place // 100}.{place // 10 % 10}.{place % 10}"
    return name if is_release else f"{name}-SNAPSHOT"
