"""Messages, queues and results.

Owns the values of the public interface: they pickle, compare by value and hold no handles, so they travel to executor
processes and back. `Message` and `ReceivedMessage` are native; the rest are tuples and an enumeration.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple, TypedDict

from rmqpy._native import Message, ReceivedMessage, sql_error, sql_matches
from rmqpy.errors import ConfigError

__all__ = [
    "Message",
    "MessageFields",
    "MessageQueue",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "Sql",
    "TransactionState",
    "sql",
]

#: Types of a body. Text is sent as UTF-8.
Body = bytes | bytearray | memoryview | str


class MessageFields(TypedDict, total=False):
    """Options of a message: keywords of `Message`, `Producer.send` and `Producer.submit`.

    `tag`: a word for filters of consumers. `keys`: words to find the message by. `properties`: user properties.
    `sharding_key`: messages with equal keys go to one queue, in order. Give at most one of `deliver_at` (a time, or
    seconds since the epoch), `deliver_after` (seconds after the broker received it) and `delay_level` (from 1).
    `priority`: from 0; topics of the type PRIORITY deliver larger ones first to a `SimpleConsumer`. `lite_topic`: one
    of the lite topics of a topic of the type LITE. `flag`: a number for the application.
    """

    tag: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    sharding_key: str | None
    deliver_at: datetime | float | None
    deliver_after: timedelta | float | None
    delay_level: int | None
    priority: int | None
    lite_topic: str | None
    flag: int


class MessageChanges(MessageFields, total=False):
    """The keywords of `Message.replace`."""

    topic: str
    body: Body


class MessageQueue(NamedTuple):
    """One queue of one `topic` on one `broker`: a name, not an address, so it stays valid when the broker moves.
    `queue_id` counts from 0 on each broker.

    >>> MessageQueue("orders", "broker-a", 3)
    MessageQueue(topic='orders', broker='broker-a', queue_id=3)
    """

    topic: str
    broker: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Sql:
    """A filter by properties, evaluated by brokers; made by `sql`. `expression` is its SQL92."""

    expression: str

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a broker would send a message with these properties, including its own such as `TAGS` and `KEYS`.

        >>> sql("price > 10").matches({"price": "11"})
        True
        """
        return sql_matches(self.expression, dict(properties))

    def __str__(self) -> str:
        return self.expression


#: A selection of messages of a topic: all with `"*"`, by tag `"paid || refunded"`, or by SQL.
Filter = str | Sql


def sql(expression: str) -> Sql:
    """A filter on message properties, accepted wherever a tag expression is: the broker sends only matches.

    >>> sql("price > 10 AND region IN ('EU', 'UK')")
    Sql(expression="price > 10 AND region IN ('EU', 'UK')")

    Properties are strings; the other operand decides how they are parsed: `price > 10` as an integer, `price > 10.0`
    as a decimal number. A message without the property does not match. Operators: `=`, `<>`, `<`, `<=`, `>`, `>=`,
    `BETWEEN`, `IN`, `IS NULL`, `CONTAINS`, `STARTSWITH`, `ENDSWITH`, and `AND`, `OR`, `NOT`; no `LIKE`, no `!=`, no
    arithmetic.

    Raises `ConfigError` with the position of an error. Brokers need `enablePropertyFilter=true`; it is off by default.
    """
    if (wrong := sql_error(expression)) is not None:
        raise ConfigError(f"{expression!r} is not a valid filter: {wrong}")
    return Sql(expression)


def tags_of(wanted: Filter) -> str:
    """The part of a filter for a client to check: tags, since brokers compare only their hashes. SQL is complete."""
    return wanted if isinstance(wanted, str) else "*"


class SendStatus(Enum):
    """Safety of a stored message; the value is the broker's response code."""

    #: Stored as configured for flush and replication.
    SEND_OK = 0
    #: Stored, but the disk did not confirm in time.
    FLUSH_DISK_TIMEOUT = 10
    #: Stored, but without a replica to copy it.
    SLAVE_NOT_AVAILABLE = 11
    #: Stored, but the replica did not confirm in time.
    FLUSH_SLAVE_TIMEOUT = 12


class TransactionState(Enum):
    """Decision about a transaction; the value is that of the protocol."""

    #: Consumers see the message.
    COMMIT = 8
    #: Consumers never see the message.
    ROLLBACK = 12
    #: Undecided: the broker asks again.
    UNKNOWN = 0


class SendResult(NamedTuple):
    """The place where a message was stored.

    `message_id` is the producer's id, which consumers see; `offset_message_id` the broker's, with its address and the
    position in its log. `queue` and `queue_offset` locate the message. `status`: how safely it is stored.
    `transaction_id`: of a transaction. `recall_handle` recalls a timed message before delivery. `attempts`: brokers
    asked, including the one that stored it.

    >>> result = SendResult("0A01", "0A02", MessageQueue("orders", "broker-a", 0), 41, SendStatus.SEND_OK)
    >>> result.ok, result.queue_offset
    (True, 41)
    """

    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    status: SendStatus
    transaction_id: str | None = None
    recall_handle: str | None = None
    attempts: int = 1

    @property
    def ok(self) -> bool:
        """Stored as configured for flush and replication."""
        return self.status is SendStatus.SEND_OK

    @property
    def is_duplicate(self) -> bool:
        """Whether the place is that of an earlier message, because it has the same `dedup` key."""
        return False


class Duplicate(SendResult):
    """The place of an earlier message with the same `dedup` key."""

    __slots__ = ()

    @property
    def is_duplicate(self) -> bool:
        """True."""
        return True
