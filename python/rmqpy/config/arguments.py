"""Checks of arguments: wrong types and values out of range are refused by name at the call.

Owns the ranges of all numbers and times of public methods, by argument name. Pure; any thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final, NamedTuple, get_args

from rmqpy.errors import ConfigError

#: Types accepted by `isinstance`; unions of abstract classes are not types to a type checker.
Kind = Any

#: The longest time. Longer ones count as this, since clocks cannot be set further.
FOREVER_S = 100.0 * 365 * 86_400


class Range(NamedTuple):
    """The range of an argument, both ends included; with `is_above`, `low` is excluded."""

    low: float
    high: float = math.inf
    is_above: bool = False

    def fault(self, value: float) -> str | None:
        """Return the reason why a number is out of range, or None."""
        if math.isnan(value):
            return "is not a number"
        if value < self.low or (self.is_above and value == self.low):
            return f"must be {'more than' if self.is_above else 'at least'} {self.low:g}, not {value!r}"
        return f"must be at most {self.high:.0f}, not {value!r}" if value > self.high else None


_COUNT: Final = Range(1, (1 << 31) - 1)
_NUMBER: Final = Range(0, (1 << 31) - 1)
_BYTES: Final = Range(1, 1 << 50)
_OFFSET: Final = Range(0, (1 << 63) - 1)
_TIME: Final = Range(0)
_TIME_ABOVE_0: Final = Range(0, is_above=True)

#: The ranges of numbers and times (in seconds) of public methods, by argument.
RANGES: Final[Mapping[str, Range]] = {
    # Clients.
    **dict.fromkeys(("connect_timeout", "request_timeout", "route_refresh"), _TIME_ABOVE_0),
    "timeout": _TIME,
    # Producers.
    "send_timeout": _TIME_ABOVE_0,
    "retries": Range(0, 1_000),
    "compress_above": _NUMBER,
    "max_message_size": _COUNT,
    "max_in_flight": Range(1, 1 << 24),
    "max_buffered_bytes": _BYTES,
    "linger": Range(0, 3_600),
    "first_row": _OFFSET,
    "batch_messages": _COUNT,
    "batch_bytes": _COUNT,
    # Consumers.
    "auto_commit": _TIME,
    "auto_extend": Range(0, FOREVER_S),
    "max_batch": _COUNT,
    "max_messages": _COUNT,
    "offset": _OFFSET,
    "workers": Range(1, 10_000),
    "batch_size": _COUNT,
    "max_attempts": _COUNT,
    "consume_timeout": _TIME_ABOVE_0,
    "prefetch_messages": _COUNT,
    "prefetch_bytes": _BYTES,
    "suspend": _TIME_ABOVE_0,
    "invisible": Range(0, 3 * 86_400, is_above=True),
    "seconds": Range(0, 3 * 86_400),
    "after": Range(0, FOREVER_S),
    # Range reads.
    "batch_rows": _COUNT,
    "pull_messages": _COUNT,
    "pull_timeout": _TIME_ABOVE_0,
    # Administrators.
    "disk_free_min": _OFFSET,
    "retry_max": Range(-1, (1 << 31) - 1),
    "retry_queues": _NUMBER,
    "priority_factor": Range(0, 100),
    "queues": Range(1, 16_384),
    "read_queues": _NUMBER,
    "write_queues": _NUMBER,
    "lite_minutes": Range(1, 43_200),
    "queue_id": _NUMBER,
    "broker_id": _OFFSET,
    "wait": _TIME,
    "count": _COUNT,
    "scan_max": _COUNT,
    "found_max": _COUNT,
    "last": _NUMBER,
    "to": _OFFSET,
    "every": Range(1, FOREVER_S),
}


def check_types(**arguments: tuple[object, Kind]) -> None:
    """Raise `TypeError` for the first value of a wrong type, `ConfigError` for a number out of range.

    >>> check_types(retries=("3", int))
    Traceback (most recent call last):
    TypeError: retries must be int, not str
    >>> check_types(retries=(-1, int))
    Traceback (most recent call last):
    rmqpy.errors.ConfigError: retries must be at least 0, not -1
    """
    for name, (value, expected) in arguments.items():
        kinds = get_args(expected) or (expected,)
        # Python counts True as 1.
        is_truth = isinstance(value, bool) and int in kinds and bool not in kinds
        if is_truth or not isinstance(value, expected):
            raise TypeError(f"{name} must be {_words(expected)}, not {type(value).__name__}")
    check_ranges({name: value for name, (value, _) in arguments.items()})


def check_ranges(arguments: Mapping[str, object]) -> None:
    """Raise `ConfigError` for the first number out of the range of its name."""
    for name, value in arguments.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            check_range(name, value, name)


def check_range(name: str, value: float, row: str) -> None:
    """Raise `ConfigError`, with the argument's name, for a number out of the range in this row of the table."""
    found = RANGES.get(row)
    if found is not None and (fault := found.fault(value)) is not None:
        raise ConfigError(f"{name} {fault}")


def check_call(
    function: Callable[..., object], args: tuple[object, ...], settings: Mapping[str, object]
) -> None:
    """Raise `ConfigError` for the first number of a call that is out of range, except its first argument."""
    # Imported here: only administrators need it.
    import inspect

    names = list(inspect.signature(function).parameters)[1:]
    check_ranges({**dict(zip(names, args, strict=False)), **settings})


def _words(expected: Kind) -> str:
    kinds = get_args(expected) or (expected,)
    # Whole numbers are accepted where floats are.
    names = [kind.__name__ for kind in kinds if kind is not NoneType and not (kind is int and float in kinds)]
    return " or ".join([*names, "None"] if NoneType in kinds else names)
