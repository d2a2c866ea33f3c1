"""Result of a health check of a cluster or a machine."""

from typing import Final, Literal, NamedTuple

#: A disk with less room than this is nearly full; brokers refuse messages at a few percent, or at 64 MiB.
DISK_FREE_BYTES_MIN: Final = 1 << 30


class CheckResult(NamedTuple):
    """One check and its result. `advice` says what to do, where something is to be done."""

    check: str
    level: Literal["ok", "warn", "bad"]
    found: str
    advice: str | None = None
