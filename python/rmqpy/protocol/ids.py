"""Message ids: the broker's is an address in its log, the producer's is only unique, and names its maker.

Both are hex, of any case. Pure; any thread.
"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple


class OffsetId(NamedTuple):
    """The broker's id: where the message is."""

    address: str
    #: Position in the log.
    offset: int


class UniqueId(NamedTuple):
    """The producer's id: where and when it was made."""

    host: str
    #: The lowest 16 bits of the process id.
    process: int
    #: Exact to `UNIQUE_ID_TOLERANCE`: clients count from the begin of the month where they are, and write no month.
    made_at: datetime
    counter: int


#: Months begin up to 14 hours earlier than in UTC, and up to 12 later; some clients count from the first noon.
UNIQUE_ID_TOLERANCE = timedelta(days=1)


def decode(text: str, now: datetime | None = None) -> OffsetId | UniqueId | None:
    """The content of an id; None when it is none. `now` decides about the month.

    >>> decode("0A00000200002A9F0000000000000100")
    OffsetId(address='10.0.0.2:10911', offset=256)
    """
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    if len(raw) not in (16, 28) or len(text) != 2 * len(raw):
        return None
    host = str(ip_address(raw[:-12]))
    port, offset = int.from_bytes(raw[-12:-8]), int.from_bytes(raw[-8:])
    # The other id has a process and a random number there: it is that small once in 65,536 times.
    if 0 < port < 1 << 16 and offset < 1 << 63:
        return OffsetId(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", offset)
    return UniqueId(host, int.from_bytes(raw[-12:-10]), _moment(raw[-6:-2], now), int.from_bytes(raw[-2:]))


def _moment(since_month: bytes, now: datetime | None) -> datetime:
    """The last time that a month was so old."""
    now = now or datetime.now(UTC)
    age = timedelta(milliseconds=int.from_bytes(since_month))
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if month + age > now + UNIQUE_ID_TOLERANCE:
        month = (month - timedelta(days=1)).replace(day=1)
    return month + age
