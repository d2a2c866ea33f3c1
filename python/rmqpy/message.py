"""Messages, and the names of the places they go to.

Owns the values of the public interface: all of them pickle, compare by value and hold no handles, so they travel
to executor processes and back. `Message` and `ReceivedMessage` are native; the rest are tuples and an enumeration.
"""

from enum import Enum
from typing import NamedTuple

from rmqpy._native import Message, ReceivedMessage

__all__ = ["Message", "MessageQueue", "ReceivedMessage", "SendResult", "SendStatus"]

#: Types a body may be given as. Text is sent as UTF-8.
Body = bytes | bytearray | memoryview | str


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker.

    >>> MessageQueue("orders", "broker-a", 3)
    MessageQueue(topic='orders', broker='broker-a', queue_id=3)
    """

    topic: str
    #: Name of the broker, not its address: it stays when the broker moves.
    broker: str
    queue_id: int


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


class SendResult(NamedTuple):
    """The place a message was stored at.

    >>> result = SendResult("0A01", "0A02", MessageQueue("orders", "broker-a", 0), 41, SendStatus.SEND_OK)
    >>> result.ok, result.queue_offset
    (True, 41)
    """

    #: The client's id: consumers see it as `ReceivedMessage.message_id`.
    message_id: str
    #: The broker's id: names broker and place in its log.
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    status: SendStatus
    transaction_id: str | None = None
    #: Takes back a message that still waits for its delivery time.
    recall_handle: str | None = None
    #: Brokers asked, the one that stored it included.
    attempts: int = 1

    @property
    def ok(self) -> bool:
        """Stored as safely as the broker's flush and replication settings ask."""
        return self.status is SendStatus.SEND_OK
