"""Messages that tests send and expect to consume, the same for every client.

Owns the comparison: a scenario has the sent messages, `Received.content` the received ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SYSTEM_PROPERTIES = frozenset(
    {
        "CLUSTER", "CONSUME_START_TIME", "KEYS", "MAX_OFFSET", "MIN_OFFSET", "MSG_REGION", "PGROUP", "SHARDING_KEY",
        "TAGS", "TRACE_ON", "TRANSACTION_CHECK_TIMES", "TRAN_MSG", "UNIQ_KEY", "WAIT", "__SHARDINGKEY",
        "__transactionId__",
    }
)  # fmt: skip
"""Properties that clients and brokers add on the way."""

COMPRESSED = 0x1
COMPRESSION_MASK = 0x700
COMPRESSION_TYPES = {"lz4": 1 << 8, "zstd": 2 << 8, "zlib": 3 << 8}


@dataclass(frozen=True)
class MessageSpec:
    """A message to be sent."""

    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0


@dataclass(frozen=True)
class SendOutcome:
    """Outcome of a send, as the sending client reports it."""

    status: str
    id: str
    offset_id: str
    queue_id: int
    queue_offset: int
    recall_handle: str | None = None


@dataclass(frozen=True)
class Received:
    """A message as a consumer got it."""

    topic: str
    body: bytes
    tag: str | None
    keys: str | None
    properties: Mapping[str, str]
    flag: int
    id: str
    offset_id: str
    queue_id: int
    queue_offset: int
    reconsume_times: int = 0
    stored_ms: int = 0

    @property
    def position(self) -> tuple[int, int]:
        return self.queue_id, self.queue_offset

    def user_properties(self) -> dict[str, str]:
        return {name: value for name, value in self.properties.items() if name not in SYSTEM_PROPERTIES}

    def content(self) -> MessageSpec:
        """The part of it that its sender decided on."""
        keys = tuple((self.keys or "").split())
        return MessageSpec(self.body, self.tag or None, keys, self.user_properties(), self.flag)


def bodies(messages: list[Received]) -> list[bytes]:
    """Return the bodies in a canonical order, to compare sets of messages."""
    return sorted(message.body for message in messages)


def numbered(count: int, prefix: str = "message", **fields: object) -> list[MessageSpec]:
    """Return `count` messages with different bodies."""
    return [MessageSpec(f"{prefix} {index:05}".encode(), **fields) for index in range(count)]  # type: ignore[arg-type]
