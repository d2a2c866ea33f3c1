"""Message trace of a producer: a record of each stored message, as Java's clients write it.

One-way sends, unstored messages, and messages whose broker wants no traces are not recorded. Any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rmqpy.client.trace.dispatcher import OpenSend, TraceDispatcher
from rmqpy.config.client import ClientConfig
from rmqpy.message import Message, ReceivedMessage, SendResult, TransactionState
from rmqpy.protocol import ids
from rmqpy.protocol.traces import DecidedNote, RecalledNote, SentKind, SentNote, keys_field

#: Returns the region of a broker by name; `None` if it wants no traces.
RegionOf = Callable[[str], str | None]

#: Hexadecimal digits of the log position at the end of a broker's message id.
_OFFSET_DIGITS: Final = 16

_DECISIONS: Final = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


@dataclass(slots=True)
class _Begun:
    at: float
    kind: SentKind


class ProducerTrace:
    """Records the messages of one producer."""

    def __init__(
        self, config: ClientConfig, trace: bool | str, group: str, region_of: RegionOf, open_send: OpenSend
    ) -> None:
        """`trace` is the topic, or true for the system's."""
        self.dispatcher = TraceDispatcher(config, trace, group, "PRODUCE", open_send)
        self._group = group
        self._region_of = region_of

    def begin(self, message: Message) -> tuple[Message, _Begun | None]:
        """Note the start of a send, unless the message is a trace itself."""
        if not self.dispatcher.is_traced(message.topic):
            return message, None
        return message, _Begun(time.time(), _kind(message))

    def mark_half(self, state: _Begun | None) -> None:
        """Note that this message is sent as a half message."""
        if state is not None:
            state.kind = SentKind.HALF

    def end(self, message: Message, state: _Begun | None, outcome: SendResult | BaseException | None) -> None:
        """Record a stored message."""
        if state is None or not isinstance(outcome, SendResult):
            return
        began = state.at
        region = self._region_of(outcome.queue.broker)
        if region is None:
            return
        note = SentNote(
            at_ms=round(began * 1_000),
            region=region,
            group=self._group,
            topic=message.topic,
            message_id=outcome.message_id,
            tag=message.tag,
            keys=keys_field(message.keys),
            broker=_address(outcome),
            body_bytes=len(message.body),
            took_ms=round((time.time() - began) * 1_000),
            kind=state.kind,
            offset_message_id=outcome.offset_message_id,
            is_success=outcome.ok,
        )
        self.dispatcher.put(note.text(), outcome.message_id, message.keys)

    def decided(
        self,
        message: Message | ReceivedMessage,
        *,
        message_id: str,
        transaction_id: str | None,
        broker: str,
        address: str | None,
        state: TransactionState,
        is_asked: bool = False,
    ) -> None:
        """Record the end of a transaction, decided by this producer or by a check."""
        region = self._region_of(broker)
        if region is None or not self.dispatcher.is_traced(message.topic):
            return
        note = DecidedNote(
            at_ms=_now_ms(),
            region=region,
            group=self._group,
            topic=message.topic,
            message_id=message_id,
            tag=message.tag,
            keys=keys_field(message.keys),
            broker=address,
            transaction_id=transaction_id,
            decision=_DECISIONS[state],
            is_asked=is_asked,
        )
        self.dispatcher.put(note.text(), message_id, message.keys)

    def ended(self, message: Message, half: SendResult, state: TransactionState) -> None:
        """Record this producer's decision about its half message."""
        self.decided(
            message,
            message_id=half.message_id,
            transaction_id=half.transaction_id,
            broker=half.queue.broker,
            address=_address(half),
            state=state,
        )

    def recalled(self, topic: str, handle: str, message_id: str) -> None:
        """Record the recall of a timed message."""
        named = ids.decode_recall_handle(handle)
        region = self._region_of(named.broker) if named is not None else None
        if region is not None and self.dispatcher.is_traced(topic):
            note = RecalledNote(
                at_ms=_now_ms(),
                region=region,
                group=self._group,
                topic=topic,
                message_id=message_id,
                is_success=True,
            )
            self.dispatcher.put(note.text(), message_id)


def _kind(message: Message) -> SentKind:
    is_delayed = (
        message.delay_level is not None or message.deliver_at is not None or message.deliver_after is not None
    )
    return SentKind.DELAYED if is_delayed else SentKind.ORDINARY


def _address(stored: SendResult) -> str | None:
    """Return the address of the broker that stored a message."""
    return _address_of(stored.offset_message_id[:-_OFFSET_DIGITS])


@lru_cache(maxsize=256)
def _address_of(digits: str) -> str | None:
    place = ids.decode(digits + "0" * _OFFSET_DIGITS)
    return place.address if isinstance(place, ids.OffsetId) else None


def _now_ms() -> int:
    return round(time.time() * 1_000)
