"""Result of a health check."""

from typing import Final, Literal, NamedTuple

#: A disk with less free space is nearly full; brokers refuse messages at a few percent, or at 64 MiB.
DISK_FREE_BYTES_MIN: Final = 1 << 30

#: The result for a broker that refuses messages; another check has the reason.
REFUSES: Final = "answers, but refuses messages"


class CheckResult(NamedTuple):
    """One check and its result. `advice` says what to do, if anything."""

    check: str
    level: Literal["ok", "warn", "bad"]
    found: str
    advice: str | None = None
