"""Bounded search of a topic's messages by time and text, with the ranges that were not searched.

Reads the newest messages of every queue first, queues in turn. Memory is bounded by the results.
"""

from datetime import datetime
from typing import Final, NamedTuple

from rmqpy._native import ReceivedMessage
from rmqpy.admin.connection import Part
from rmqpy.admin.messages import Messages
from rmqpy.admin.reading import read
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.errors import ConfigError, DecodeError

#: The most messages that one search reads, and returns.
SCAN_MAX: Final = 100_000
FOUND_MAX: Final = 1_000
#: The most bytes of returned messages.
_FOUND_BYTES_MAX: Final = 32 << 20
#: Queues are read backwards in pieces of this many.
_PIECE: Final = 256


class Unscanned(NamedTuple):
    """Messages of one queue within the given times that were not searched."""

    broker: str
    queue_id: int
    begin: int
    end: int


class Found(NamedTuple):
    """Results of a search, newest first, and its range."""

    messages: list[ReceivedMessage]
    scanned: int
    #: Empty if everything was searched.
    unscanned: list[Unscanned]


class _Piece(NamedTuple):
    """Offsets of a queue that are left to search."""

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
        """Find messages stored from `begin` until before `end` whose body, keys or properties contain `text`, and
        that have the tag; newest first in each queue. Case-insensitive.

        Reads at most `scan_max` messages and returns at most `found_max`. Raises `TopicNotFound`.
        """
        for name, given, most in (("scan_max", scan_max, SCAN_MAX), ("found_max", found_max, FOUND_MAX)):
            if not 1 <= given <= most:
                raise ConfigError(f"{name} must be from 1 to {most}, not {given}")
        wanted = None if text is None else text.casefold()
        left = await self._pieces(topic, begin, end)
        found: list[ReceivedMessage] = []
        scanned = size = 0
        while left and scanned < scan_max and len(found) < found_max and size < _FOUND_BYTES_MAX:
            # Queues in turn: the newest messages of all come before older ones of any.
            piece = left.pop(0)
            first = max(piece.begin, piece.end - min(_PIECE, scan_max - scanned))
            newest_first = [each async for each in read(self._cluster, topic, piece.state, first, piece.end)][
                ::-1
            ]
            scanned += piece.end - first
            for message in newest_first:
                if (tag is None or message.tag == tag) and (wanted is None or has_text(message, wanted)):
                    if len(found) == found_max or size >= _FOUND_BYTES_MAX:
                        # Older messages of this queue were not searched.
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
    """Whether the message contains this lower-case text in its body, keys or properties."""
    for name, value in message.properties.items():
        if wanted in name.casefold() or wanted in value.casefold():
            return True
    try:
        return wanted in message.body.decode("utf-8", "replace").casefold()
    except DecodeError:
        return False
