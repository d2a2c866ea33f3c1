"""Message ids: the broker's names a position in its log, the producer's only its maker and time.

Both are hex, in any case. A timed message also has a recall handle. Any thread; pure, except `UniqueIds`.
"""

import base64
import os
import socket
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count
from typing import NamedTuple

from rmqpy.config.addresses import HostPort


class OffsetId(NamedTuple):
    """The broker's id: the place of the message."""

    address: str
    #: Position in the log.
    offset: int


class UniqueId(NamedTuple):
    """The producer's id: the place and time of its creation."""

    host: str
    #: The lowest 16 bits of the process id.
    process: int
    #: Accurate to `UNIQUE_ID_TOLERANCE`: clients count from the start of their local month, without naming it.
    made_at: datetime
    counter: int


#: Months begin up to 14 hours earlier than in UTC, and up to 12 later; some clients count from the first noon.
UNIQUE_ID_TOLERANCE = timedelta(days=1)


def decode(text: str, now: datetime | None = None) -> OffsetId | UniqueId | None:
    """Decode an id; None if it is not one. `now` determines the month.

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
    # The other id has a process and a random number there, which are that small once in 65,536 times.
    if 0 < port < 1 << 16 and offset < 1 << 63:
        return OffsetId(str(HostPort(host, port)), offset)
    return UniqueId(host, int.from_bytes(raw[-12:-10]), _moment(raw[-6:-2], now), int.from_bytes(raw[-2:]))


class RecallHandle(NamedTuple):
    """Recall handle of a timed message. Topic and id are those of the wire."""

    topic: str
    broker: str
    #: A time in the slot of the broker's wheel, in milliseconds since the epoch.
    time_ms: int
    message_id: str


def decode_recall_handle(text: str) -> RecallHandle | None:
    """Decode a recall handle; None if it is not one, or of an unknown version.

    >>> decode_recall_handle("djEgVDEgYmEgMTc5NTI1NzY1NjAwMSAwQTAwMDAwMTAwMDAwMDAxMDAwMDAwMDAwMDAwMDBDNA==").time_ms
    1795257656001
    """
    try:
        version, topic, broker, time_ms, message_id = base64.urlsafe_b64decode(text).decode().split(" ")
        found = RecallHandle(topic, broker, int(time_ms), message_id)
    except ValueError:
        return None
    return found if version == "v1" and all((topic, broker, message_id)) else None


def encode_recall_handle(handle: RecallHandle) -> str:
    """Encode a recall handle, as brokers do.

    >>> decode_recall_handle(encode_recall_handle(RecallHandle("T", "b", 1001, "0A"))).message_id
    '0A'
    """
    text = f"v1 {handle.topic} {handle.broker} {handle.time_ms} {handle.message_id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


class UniqueIds:
    """Generator of producer ids, in the layout of Java's clients, for messages not sent by the native module.

    Belongs to one process. Equal ids need 65,536 messages within one millisecond.

    >>> ids = UniqueIds()
    >>> made = decode(ids.next())
    >>> made.process == os.getpid() & 0xFFFF, made.counter
    (True, 0)
    """

    def __init__(self) -> None:
        # Random numbers distinguish generators that agree otherwise, for instance in containers.
        self._maker = _own_address() + (os.getpid() & 0xFFFF).to_bytes(2) + os.urandom(4)
        self._count = count()

    def next(self) -> str:
        """An id that no other message has."""
        # Twelve hours behind UTC: readers in every zone decode a time that is not in the future.
        now = datetime.now(UTC) - timedelta(hours=12)
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        age = (now - month) // timedelta(milliseconds=1)
        made = self._maker + age.to_bytes(4) + (next(self._count) & 0xFFFF).to_bytes(2)
        return made.hex().upper()


def _own_address() -> bytes:
    """An address of this machine, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return bytes([127, 0, 0, 1])
        return socket.inet_aton(probe.getsockname()[0])


def _moment(since_month: bytes, now: datetime | None) -> datetime:
    """The last time at which a month had this age."""
    now = now or datetime.now(UTC)
    age = timedelta(milliseconds=int.from_bytes(since_month))
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if month + age > now + UNIQUE_ID_TOLERANCE:
        month = (month - timedelta(days=1)).replace(day=1)
    return month + age
