"""Search of a topic's messages by time and text, within a bound: how many are looked at, and which were not.

The newest messages of every queue are looked at first, each queue's in its turn; memory is bounded by what is found.
"""

from datetime import datetime
from typing import Final, NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import Part
from rmqpy.admin.messages import Messages
from rmqpy.admin.reading import read
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.errors import ConfigError, DecodeError

#: Messages that one search looks at, and that it hands back, at most.
SCAN_MAX: Final = 100_000
FOUND_MAX: Final = 1_000
#: Bytes of the messages that it hands back, at most.
_FOUND_BYTES_MAX: Final = 32 << 20
#: A queue is read backwards in pieces of so many.
_PIECE: Final = 256


class Unscanned(NamedTuple):
    """Messages of one queue, within the times asked for, that were not looked at."""

    broker: str
    queue_id: int
    begin: int
    end: int


class Found(NamedTuple):
    """What a search found, newest first, and how far it looked."""

    messages: list[ReceivedMessage]
    scanned: int
    #: Empty where everything was looked at.
    unscanned: list[Unscanned]


class _Piece(NamedTuple):
    """Offsets of a queue that are left to look at."""

    state: QueueState
    begin: int
    end: int


class Search(Part):
    """Searches in one cluster."""

    async def run(
        self,
        topic: str,
        *,
        text: str | None = None,
        tag: str | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        scan_max: int = 10_000,
        found_max: int = 100,
    ) -> Found:
        """Messages stored from `begin` on and before `end` whose body, keys or properties have `text`, and that have
        the tag; newest first of each queue. Capitals and small letters are the same.

        Looks at `scan_max` messages and hands back `found_max`, at most. Raises `TopicNotFound`.
        """
        for name, given, most in (("scan_max", scan_max, SCAN_MAX), ("found_max", found_max, FOUND_MAX)):
            if not 1 <= given <= most:
                raise ConfigError(f"{name} must be from 1 to {most}, not {given}")
        wanted = None if text is None else text.casefold()
        left = await self._pieces(topic, begin, end)
        found: list[ReceivedMessage] = []
        scanned = size = 0
        while left and scanned < scan_max and len(found) < found_max and size < _FOUND_BYTES_MAX:
            # Queues take turns: the newest of all come before the older ones of any.
            piece = left.pop(0)
            first = max(piece.begin, piece.end - min(_PIECE, scan_max - scanned))
            newest_first = [each async for each in read(self._cluster, topic, piece.state, first, piece.end)][
                ::-1
            ]
            scanned += piece.end - first
            for message in newest_first:
                if (tag is None or message.tag == tag) and (wanted is None or has_text(message, wanted)):
                    if len(found) == found_max or size >= _FOUND_BYTES_MAX:
                        # From here on this queue was not looked at.
                        scanned -= message.queue_offset + 1 - first
                        first = message.queue_offset + 1
                        break
                    found.append(message)
                    size += len(message.body)
            if first > piece.begin:
                left.append(piece._replace(end=first))
        found.sort(key=lambda each: each.stored_at, reverse=True)
        unscanned = [Unscanned(each.state.broker, each.state.queue_id, each.begin, each.end) for each in left]
        return Found(found, scanned, sorted(unscanned))

    async def _pieces(self, topic: str, begin: datetime | None, end: datetime | None) -> list[_Piece]:
        messages = Messages(self._cluster)
        pieces = []
        for state in await Topics(self._cluster).describe(topic):
            first, last = await messages.range_between(topic, state, begin, end)
            if first < last:
                pieces.append(_Piece(state, first, last))
        return pieces


def has_text(message: ReceivedMessage, wanted: str) -> bool:
    """Whether the message has this text, in small letters, in its body, its keys or its properties."""
    for name, value in message.properties.items():
        if wanted in name.casefold() or wanted in value.casefold():
            return True
    try:
        return wanted in message.body.decode("utf-8", "replace").casefold()
    except DecodeError:
        return False
