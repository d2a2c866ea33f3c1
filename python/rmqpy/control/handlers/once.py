"""Sends that are stored once: a message with a known key is answered with the place of the first one.

Owns the keys of sends in flight, and of the latest ones until the index has them. The index is the truth, so that keys
survive restarts and promotions: the message id is made of topic and key, and a message with this id within the window
is the first one. Sends without a key never come here. On the event loop; a worker reads the index.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections import OrderedDict
from typing import Final, Protocol

from rmqpy._native import ReceivedMessage, Store
from rmqpy.clock import Clock
from rmqpy.control.settings import LiveConfig
from rmqpy.errors import RocketMQError, StoreError
from rmqpy.message import MessageQueue
from rmqpy.protocol import properties
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.names import TIMER_TOPIC
from rmqpy.protocol.requests.messages import SendMessage, SendOnce, StoredMessage, StoredOnce
from rmqpy.remoting.server import Refused, handles

#: Keys in memory. The index has those that are dropped.
KEYS_MAX: Final = 16_384
#: Longest key in bytes.
KEY_BYTES_MAX: Final = 255
#: Copies with one id: a retry or a timed message has several.
COPIES_MAX: Final = 8
#: The property with the key.
DEDUP_KEY: Final = "DEDUP_KEY"
_QUEUE_ID: Final = struct.Struct(">12xi")


class OwnSends(Protocol):
    """Sends of this broker to itself."""

    async def send(self, ask: SendMessage) -> StoredMessage:
        """Store a message. Raises `RocketMQError`."""


class OnceHandlers:
    """Stores messages with a deduplication key."""

    def __init__(self, config: LiveConfig, store: Store, own: OwnSends, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._own = own
        self._clock = clock
        #: Sends in flight, by message id.
        self._sending: dict[str, asyncio.Future[StoredOnce]] = {}
        #: The latest sends, and the time of each.
        self._latest: OrderedDict[str, tuple[int, StoredOnce]] = OrderedDict()

    @handles(SendOnce)
    async def send_once(self, ask: SendOnce) -> StoredOnce:
        if (
            not ask.dedup_key
            or len(ask.dedup_key.encode()) > KEY_BYTES_MAX
            or not ask.dedup_key.isprintable()
        ):
            remark = f"a deduplication key has 1 to {KEY_BYTES_MAX} bytes of printable text"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        source = f"{ask.topic}\n{ask.dedup_key}"
        unique_id = hashlib.blake2b(source.encode(), digest_size=16).hexdigest().upper()
        while (pending := self._sending.get(unique_id)) is not None:
            # If that one fails, this one is sent.
            await asyncio.wait((pending,))
            if not pending.cancelled() and pending.exception() is None:
                return _repeated(pending.result())
        self._sending[unique_id] = sending = asyncio.get_running_loop().create_future()
        # Other senders may not wait for it.
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            stored = await self._find(unique_id, ask) or await self._send(unique_id, ask)
        except BaseException as error:
            sending.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            raise
        finally:
            del self._sending[unique_id]
        sending.set_result(stored)
        return stored

    async def _find(self, unique_id: str, ask: SendOnce) -> StoredOnce | None:
        """Return the first message within the window, if there is one."""
        since_ms = self._clock.wall_ms() - self._config.now.deduplication_window_ms
        known = self._latest.get(unique_id)
        if known is not None:
            if known[0] > since_ms:
                return _repeated(known[1])
            # An older message is not in the index within the window.
            return None
        try:
            return await asyncio.to_thread(self._look_up, unique_id, ask, since_ms)
        except StoreError as error:
            # Storing it without the look-up could repeat it.
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error

    def _look_up(self, unique_id: str, ask: SendOnce, since_ms: int) -> StoredOnce | None:
        for topic in (ask.topic, TIMER_TOPIC):
            records, _, _ = self._store.query(topic, unique_id, COPIES_MAX, since_ms, (1 << 63) - 1)
            for record in records:
                (queue_id,) = _QUEUE_ID.unpack_from(record)
                found = ReceivedMessage(record, None, MessageQueue(topic, "", queue_id))
                # A delivered timed message was sent before: its time in the log is that of its delivery.
                if found.properties.get(DEDUP_KEY) == ask.dedup_key and found.message_id == unique_id:
                    return StoredOnce(
                        msg_id=found.offset_message_id,
                        unique_id=unique_id,
                        queue_id=queue_id,
                        queue_offset=found.queue_offset,
                        is_duplicate=True,
                    )
        return None

    async def _send(self, unique_id: str, ask: SendOnce) -> StoredOnce:
        own = {"UNIQ_KEY": unique_id, DEDUP_KEY: ask.dedup_key}
        try:
            stored = await self._own.send(
                SendMessage(
                    producer_group=ask.producer_group,
                    topic=ask.topic,
                    queue_id=ask.queue_id,
                    born_timestamp=ask.born_timestamp,
                    flag=ask.flag,
                    properties=properties.encode({**properties.decode(ask.properties), **own}),
                    body=ask.body,
                )
            )
        except RocketMQError as error:
            code = ResponseCode.SYSTEM_BUSY
            if error.code in set(ResponseCode):
                code = ResponseCode(error.code)
            raise Refused(code, error.remark or str(error)) from error
        once = StoredOnce(
            msg_id=stored.msg_id,
            unique_id=unique_id,
            queue_id=stored.queue_id,
            queue_offset=stored.queue_offset,
        )
        self._latest[unique_id] = (self._clock.wall_ms(), once)
        self._latest.move_to_end(unique_id)
        while len(self._latest) > KEYS_MAX:
            self._latest.popitem(last=False)
        return once


def _repeated(stored: StoredOnce) -> StoredOnce:
    return StoredOnce(
        msg_id=stored.msg_id,
        unique_id=stored.unique_id,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        is_duplicate=True,
    )
