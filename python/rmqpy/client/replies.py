"""Replies that come to the producers of one native client: each ends the request it answers.

Owns the requests that wait, by correlation id, and the thread `rmqpy-replies` that reads what brokers send, from the
first producer that sends a request to the end of the last one. It only completes futures: whoever waits goes on in a
thread or event loop of its own.

Invariant: a request gets one reply at most. What comes later, or to nobody here, is dropped and counted. Any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rmqpy import errors
from rmqpy._native import Client, encode_record
from rmqpy.client.heartbeats import ProducerHeartbeats
from rmqpy.message import MessageQueue, ReceivedMessage
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.replies import ARRIVE_TIME, CORRELATION_ID, PushReplyMessage
from rmqpy.remoting.listener import ThreadListener
from rmqpy.remoting.server import handles

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

#: What a request ends with. An error is a value here, for nobody may ask for it.
Outcome = ReceivedMessage | errors.RocketMQError


class Replies:
    """The requests that wait for a reply."""

    def __init__(self, client: Client, heartbeats: ProducerHeartbeats) -> None:
        self._client = client
        self._heartbeats = heartbeats
        self._waiting: dict[str, Future[Outcome]] = {}
        #: Replies that came too late, or twice, or to nobody here.
        self.late = 0
        self._holders = 0
        #: May be taken again by the thread that has it: a producer may end in a finalizer.
        self._lock = threading.RLock()
        self._listener: ThreadListener | None = None

    def join(self) -> None:
        """One more producer that sends requests."""
        with self._lock:
            self._holders += 1
            if self._listener is None:
                self._listener = ThreadListener(self._client, [self], "rmqpy-replies", self._heartbeats.lost)
                self._listener.start()

    def leave(self) -> None:
        """One producer less."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._listener is not None:
                self._listener.close()
                self._listener = None

    def expect(self, correlation_id: str, outcome: Future[Outcome]) -> None:
        """Complete `outcome` with the reply of this correlation id. Until `forget`."""
        self._waiting[correlation_id] = outcome

    def forget(self, correlation_id: str) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(correlation_id, None)

    @handles(PushReplyMessage)
    def arrived(self, ask: PushReplyMessage, address: str) -> None:
        """A broker sends a reply. It is taken whether or not somebody waits for it still."""
        namespace = self._client.namespace
        properties = (ask.properties or "") + encode({ARRIVE_TIME: str(time.time_ns() // 1_000_000)})
        record = encode_record(
            topic=ask.topic,
            queue_id=ask.queue_id,
            flag=ask.flag,
            sys_flag=ask.sys_flag,
            born_ms=ask.born_timestamp,
            born_host=ask.born_host,
            stored_ms=ask.store_timestamp,
            store_host=ask.store_host,
            reconsume_times=ask.reconsume_times or 0,
            properties=properties,
            body=ask.body,
        )
        reply = ReceivedMessage(record, None, MessageQueue(ask.topic, "", ask.queue_id), namespace)
        correlation_id = reply.properties.get(CORRELATION_ID, "")
        outcome = self._waiting.pop(correlation_id, None)
        if outcome is None or outcome.done():
            self.late += 1
            log.debug("the reply %s of %s came when nobody waited for it", correlation_id, address)
            return
        # It may have timed out at this moment.
        from concurrent.futures import InvalidStateError

        with suppress(InvalidStateError):
            outcome.set_result(reply)
