"""Replies to the producers of one native client: each completes the request it answers.

Owns the pending requests, by correlation id, and the thread `rmqpy-replies`, which reads replies from the first
producer that sends a request to the end of the last one. The thread only completes futures; waiters continue in their
own thread or event loop.

Invariant: a request gets at most one reply. Late and unknown replies are dropped and counted. Any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rmqpy import errors
from rmqpy._native import encode_record
from rmqpy.client.cluster import ClusterConnection
from rmqpy.message import MessageQueue, ReceivedMessage
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.replies import ARRIVE_TIME, CORRELATION_ID, PushReplyMessage
from rmqpy.remoting.listener import ThreadListener
from rmqpy.remoting.server import handles

if TYPE_CHECKING:
    from concurrent.futures import Future

log = logging.getLogger(__name__)

#: The end of a request. An error is stored as a value, because it may never be retrieved.
Outcome = ReceivedMessage | errors.RocketMQError


class Replies:
    """The pending requests of one native client."""

    def __init__(self, cluster: ClusterConnection) -> None:
        self._client = cluster.client
        self._heartbeats = cluster.heartbeats
        self._waiting: dict[str, Future[Outcome]] = {}
        #: Replies that were dropped: late, repeated or unknown.
        self.late = 0
        self._holders = 0
        #: Reentrant, because a finalizer may close a producer.
        self._lock = threading.RLock()
        self._listener: ThreadListener | None = None

    def join(self) -> None:
        """Add a producer that sends requests."""
        with self._lock:
            self._holders += 1
            if self._listener is None:
                self._listener = ThreadListener(self._client, [self], "rmqpy-replies", self._heartbeats.lost)
                self._listener.start()

    def leave(self) -> None:
        """Remove a producer."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._listener is not None:
                self._listener.close()
                self._listener = None

    def expect(self, correlation_id: str, outcome: Future[Outcome]) -> None:
        """Complete `outcome` with the reply of this correlation id, until `forget`."""
        self._waiting[correlation_id] = outcome

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for a reply."""
        self._waiting.pop(correlation_id, None)

    @handles(PushReplyMessage)
    def arrived(self, ask: PushReplyMessage, address: str) -> None:
        """Take a reply that a broker sent. It is acknowledged even if no request waits for it."""
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
            log.debug("dropping the reply %s from %s: no request waits for it", correlation_id, address)
            return
        # The request may time out at this moment.
        from concurrent.futures import InvalidStateError

        with suppress(InvalidStateError):
            outcome.set_result(reply)
