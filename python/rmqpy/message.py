"""Messages, and the names of the places they go to.

Owns the values of the public interface: all of them pickle, compare by value and hold no handles, so they travel
to executor processes and back. `Message` and `ReceivedMessage` are native; the rest are tuples and an enumeration.
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

#: Types a body may be given as. Text is sent as UTF-8.
Body = bytes | bytearray | memoryview | str


class MessageFields(TypedDict, total=False):
    """What a message may have beside topic and body: keywords of `Message`, `Producer.send` and `Producer.submit`.

    `tag`: a word that consumers can filter by. `keys`: words the message can be found by. `properties`: the user's
    own. `sharding_key`: messages with equal keys go to one queue, in order. Of `deliver_at` (a time, or seconds since
    the epoch), `deliver_after` (seconds after the broker got it) and `delay_level` (from 1) give one. `priority`: a
    number that brokers keep with it. `flag`: a number of the application's own.
    """

    tag: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    sharding_key: str | None
    deliver_at: datetime | float | None
    deliver_after: timedelta | float | None
    delay_level: int | None
    priority: int | None
    flag: int


class MessageChanges(MessageFields, total=False):
    """The keywords of `Message.replace`."""

    topic: str
    body: Body


class MessageQueue(NamedTuple):
    """One queue of one `topic` on one `broker`: a name, not an address, so that it stays when the broker moves.
    `queue_id` counts from 0 at each broker.

    >>> MessageQueue("orders", "broker-a", 3)
    MessageQueue(topic='orders', broker='broker-a', queue_id=3)
    """

    topic: str
    broker: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Sql:
    """A filter by properties, which brokers evaluate; made by `sql`. `expression` is its SQL92."""

    expression: str

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a broker would send a message with these properties. It sees its own too, such as `TAGS` and `KEYS`.

        >>> sql("price > 10").matches({"price": "11"})
        True
        """
        return sql_matches(self.expression, dict(properties))

    def __str__(self) -> str:
        return self.expression


#: The messages of a topic that are wanted: all with `"*"`, those with a tag, `"paid || refunded"`, or by SQL.
Filter = str | Sql


def sql(expression: str) -> Sql:
    """A filter on the properties of messages, for the place of a tag expression: the broker sends what matches.

    >>> sql("price > 10 AND region IN ('EU', 'UK')")
    Sql(expression="price > 10 AND region IN ('EU', 'UK')")

    Properties are text; what they are compared with decides how they are read: `price > 10` as an integer,
    `price > 10.0` as a number with a fraction. A message without the property does not match. There are `=`, `<>`,
    `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `IS NULL`, `CONTAINS`, `STARTSWITH`, `ENDSWITH`, and `AND`, `OR`, `NOT`;
    no `LIKE`, no `!=`, no arithmetic.

    Raises `ConfigError` with the place of what is wrong. Apache's brokers have such filters switched off unless their
    configuration says `enablePropertyFilter=true`, and ours do.
    """
    if (wrong := sql_error(expression)) is not None:
        raise ConfigError(f"{expression!r} is no filter: {wrong}")
    return Sql(expression)


def tags_of(wanted: Filter) -> str:
    """What is left of a filter for a client to look at: tags, whose hashes brokers compare. SQL they have evaluated."""
    return wanted if isinstance(wanted, str) else "*"


class SendStatus(Enum):
    """Safety of a stored message; the value is the broker's response code."""

    #: Stored as the broker's flush and replication settings ask.
    SEND_OK = 0
    #: Stored, but the disk did not confirm in time.
    FLUSH_DISK_TIMEOUT = 10
    #: Stored, but no replica was there to copy it.
    SLAVE_NOT_AVAILABLE = 11
    #: Stored, but the replica did not confirm in time.
    FLUSH_SLAVE_TIMEOUT = 12


class TransactionState(Enum):
    """Decision about a transaction; the value is what it is in the protocol."""

    #: Consumers see the message.
    COMMIT = 8
    #: Nobody ever sees it.
    ROLLBACK = 12
    #: Nobody knows yet: the broker asks again.
    UNKNOWN = 0


class SendResult(NamedTuple):
    """The place a message was stored at.

    `message_id` is the client's id, which consumers see; `offset_message_id` the broker's, which names broker and
    place in its log. `queue` and `queue_offset` are where it can be read. `status` tells how safe it is.
    `transaction_id` is that of a transaction; `recall_handle` takes back a message that still waits for its delivery
    time. `attempts`: brokers asked, the one that stored it included.

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
        """Stored as safely as the broker's flush and replication settings ask."""
        return self.status is SendStatus.SEND_OK
