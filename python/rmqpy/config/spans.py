"""Time spans as text, such as `10m`: ages and intervals. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Final

#: The most digits of a number, so that it is below 2^63.
DIGITS_MAX: Final = 18
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def span_of(text: str) -> timedelta | None:
    """Parse `1500ms`, `10s`, `5m`, `2h` or `1d`; return `None` for other text. Raises `OverflowError` if it exceeds any
    calendar.

    >>> span_of("90s"), span_of("soon")
    (datetime.timedelta(seconds=90), None)
    """
    number = text.rstrip("msdh")
    if number.isascii() and number.isdigit() and len(number) > DIGITS_MAX:
        raise OverflowError(f"more than {DIGITS_MAX} digits")
    if text.endswith("ms") and text[:-2].isascii() and text[:-2].isdigit():
        return timedelta(milliseconds=int(text[:-2]))
    number, unit = text[:-1], text[-1:]
    if number.isascii() and number.isdigit() and unit in _UNITS:
        return timedelta(**{_UNITS[unit]: int(number)})
    return None


def moment_of(when: datetime | timedelta | str) -> datetime:
    """Return a time: given, as text in ISO-8601, or as an age before now, such as `1h`. Text without a time zone
    has that of this machine. Raises `ValueError` or `OverflowError`."""
    if isinstance(when, str):
        age = span_of(when)
        when = datetime.fromisoformat(when) if age is None else age
    if isinstance(when, timedelta):
        return datetime.now(UTC) - when
    return when if when.tzinfo else when.astimezone()
