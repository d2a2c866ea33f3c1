"""Receiver: pops the topics of one consumer, and acknowledges received messages.

Owns the pops in flight, one for each topic and broker, and their surplus messages. Threads and event loops share this
code, which waits through a `Caller`. For one thread, or one task, at a time.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy._native import Call, ReceivedMessage
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.reports import outages
from rmqpy.client.simple import requests
from rmqpy.client.simple.extensions import Extensions
from rmqpy.client.simple.requests import Handle
from rmqpy.message import Filter, tags_of
from rmqpy.protocol import refusals
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.messages import ConsumerSendMessageBack
from rmqpy.remoting.backoff import FAILING
from rmqpy.remoting.client import Caller, check_transport

log = logging.getLogger(__name__)

#: The time a reply may take beyond the broker's wait.
REPLY_S: Final = 10.0
#: The fraction of its time that a buffered message must still stay hidden when it is returned.
LEFT_SHARE: Final = 0.5
#: Replaced handles that are remembered.
MOVED_MAX: Final = 100_000
#: The delay level of a dead letter.
_DEAD: Final = -1


class _Source(NamedTuple):
    """Messages of one topic at one broker."""

    topic: str
    broker: str


class _Pop(NamedTuple):
    source: _Source
    address: str
    call: Call


class _Early(NamedTuple):
    """A surplus message, and the time at which it becomes visible again here."""

    message: ReceivedMessage
    hidden_until: float
    invisible_s: float


class Receiver:
    """The pops, acknowledgements and changed times of one consumer."""

    def __init__(self, cluster: ClusterConnection, caller: Caller, group: str, *, from_first: bool) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = caller.wire_name(group)
        self._from_first = from_first
        self._inbox = caller.inbox()
        self._wanted: dict[str, Filter] = {}
        self._pops: dict[int, _Pop] = {}
        self._token = 0
        #: Sources that failed: the failures in a row, and the end of the pause.
        self._failures: dict[_Source, int] = {}
        self._not_before: dict[_Source, float] = {}
        self._early: deque[_Early] = deque()
        #: New handles after a change of the invisible time, by the handle in the message.
        self._moved: dict[Handle, Handle] = {}
        self._extensions: Extensions | None = None

    def extend_automatically(self, seconds_max: float, changed: Callable[[], None]) -> Extensions:
        """Hold delivered messages; the caller drives the returned extensions."""
        self._extensions = Extensions(self._caller, self._hide, seconds_max=seconds_max, changed=changed)
        return self._extensions

    def subscribe(self, topic: str, wanted: Filter) -> None:
        """Receive messages of a topic from now on; `wanted` replaces the previous filter."""
        self._wanted[topic] = wanted

    def unsubscribe(self, topic: str) -> None:
        """Stop receiving messages of a topic."""
        self._wanted.pop(topic, None)

    async def receive(self, count: int, invisible_s: float, wait_s: float) -> list[ReceivedMessage]:
        """Return up to `count` messages; none after `wait_s` seconds."""
        if not self._wanted:
            raise RuntimeError("subscribe to a topic first")
        until = time.monotonic() + wait_s
        while True:
            if found := self._take_early(count):
                return found
            left = max(0.0, until - time.monotonic())
            failure = await self._start(count, invisible_s, left)
            if not self._pops and failure is not None and not left:
                raise failure
            if self._pops:
                await self._inbox.wait(left + REPLY_S)
            else:
                await self._caller.sleep(min(left, FAILING.first_s))
            for token, call in self._inbox.take():
                pop = self._pops.pop(token, None)
                if pop is not None:
                    await self._finish(pop, call, invisible_s)
            if not self._early and time.monotonic() >= until and not self._pops:
                if isinstance(failure, errors.TopicNotFound):
                    raise failure
                return []

    async def _start(self, count: int, invisible_s: float, wait_s: float) -> errors.RocketMQError | None:
        """Start a pop at each source that has none in flight. Returns the first error of a source that failed to
        start."""
        failure: errors.RocketMQError | None = None
        busy = {pop.source for pop in self._pops.values()}
        now = time.monotonic()
        for topic, wanted in self._wanted.items():
            try:
                route = await self._cluster.routes.subscribe(topic, self._caller)
                brokers = {queue.broker for queue in route.readable}
                sources = [(_Source(topic, broker), route.master(broker)) for broker in sorted(brokers)]
            # The topic may still appear: a broker registers one a moment after the send that created it.
            except (errors.RouteError, errors.ConnectError) as error:
                failure = failure or error
                continue
            for source, address in sources:
                if source in busy or self._not_before.get(source, 0.0) > now:
                    continue
                self._token += 1
                ext = requests.pop(
                    self._group,
                    self._caller.wire_name(topic),
                    wanted,
                    count=count,
                    invisible_s=invisible_s,
                    wait_s=wait_s,
                    from_first=self._from_first,
                )
                call = self._caller.client.call(
                    address,
                    requests.POP,
                    ext,
                    None,
                    timeout_ms=round((wait_s + REPLY_S) * 1000),
                    completions=self._inbox.completions,
                    token=self._token,
                )
                self._pops[self._token] = _Pop(source, address, call)
        return failure

    async def _finish(self, pop: _Pop, call: Call, invisible_s: float) -> None:
        """Take the messages of a completed pop. Raises errors that no retry can mend."""
        source = pop.source
        try:
            check_transport(call, pop.address)
            if call.code in requests.NOTHING:
                self._failures.pop(source, None)
                return
            if call.code != ResponseCode.SUCCESS:
                raise refusals.from_response(call.code, call.remark, broker=source.broker, topic=source.topic)
        except errors.RocketMQError as error:
            if not error.retriable:
                raise
            times = self._failures[source] = self._failures.get(source, 0) + 1
            self._not_before[source] = time.monotonic() + FAILING.pause_s(times)
            self._cluster.routes.doubt(source.topic, is_gone=isinstance(error, errors.TopicNotFound))
            outages.warn(
                log, error, "cannot receive messages of %s from broker %s", source.topic, source.broker
            )
            return
        self._failures.pop(source, None)
        hidden_until = time.monotonic() + invisible_s
        tags = {tag.strip() for tag in tags_of(self._wanted.get(source.topic, "*")).split("||")}
        unwanted = []
        for message in call.popped(source.topic, source.broker, self._caller.namespace):
            # Brokers filter by hash, so a message may pass by a collision; it is acknowledged here.
            if "*" not in tags and message.tag not in tags:
                unwanted.append(message)
            else:
                self._early.append(_Early(message, hidden_until, invisible_s))
        if unwanted:
            await self.ack(unwanted)

    def _take_early(self, count: int) -> list[ReceivedMessage]:
        """Return surplus messages. Those that become visible again too soon are dropped, and delivered again."""
        found: list[ReceivedMessage] = []
        now = time.monotonic()
        while self._early and len(found) < count:
            early = self._early.popleft()
            if early.hidden_until - now >= early.invisible_s * LEFT_SHARE:
                found.append(early.message)
                if self._extensions is not None:
                    self._extensions.hold(early.message, early.hidden_until, early.invisible_s)
        return found

    async def ack(self, messages: list[ReceivedMessage]) -> None:
        """Acknowledge messages, which ends their delivery."""
        by_broker: dict[tuple[str, str], list[Handle]] = {}
        originals = [Handle.of(message) for message in messages]
        for message, original in zip(messages, originals, strict=True):
            await self._release(message)
            handle = self._moved.get(original, original)
            by_broker.setdefault((message.queue.topic, handle.broker), []).append(handle)
        for (topic, broker), handles in by_broker.items():
            name = self._caller.wire_name(topic)
            if len(handles) == 1:
                await self._ask(topic, broker, requests.ACK, requests.about(self._group, name, handles[0]))
            else:
                body = requests.batch(self._group, name, broker, handles)
                await self._ask(topic, broker, requests.BATCH_ACK, {"bname": broker}, body)
        # Kept until now, so that a failed acknowledgement can be repeated.
        for original in originals:
            self._moved.pop(original, None)

    async def extend(self, message: ReceivedMessage, seconds: float) -> None:
        """Hide a message for this long from now on."""
        await self._release(message)
        hidden_until = time.monotonic() + seconds
        await self._hide(message, seconds)
        if self._extensions is not None:
            self._extensions.hold(message, hidden_until, seconds)

    async def give_back(self, message: ReceivedMessage, after_s: float) -> None:
        """Let a message be delivered again after this long; with 0 immediately."""
        await self._release(message)
        await self._hide(message, after_s)

    async def _release(self, message: ReceivedMessage) -> None:
        if self._extensions is not None:
            await self._extensions.release(message)

    async def _hide(self, message: ReceivedMessage, seconds: float) -> None:
        original = Handle.of(message)
        handle = self._moved.get(original, original)
        topic = message.queue.topic
        ext = requests.about(self._group, self._caller.wire_name(topic), handle)
        ext["invisibleTime"] = str(round(seconds * 1000))
        call = await self._ask(topic, handle.broker, requests.CHANGE, ext)
        if seconds > 0:
            if len(self._moved) >= MOVED_MAX:
                self._moved.pop(next(iter(self._moved)))
            self._moved[original] = requests.moved(handle, call.ext, handle.broker)
        else:
            self._moved.pop(original, None)

    async def bury(self, message: ReceivedMessage) -> None:
        """Store a copy in the group's dead-letter topic, and acknowledge the message."""
        await self._release(message)
        handle = Handle.of(message)
        route = await self._cluster.routes.subscribe(message.queue.topic, self._caller)
        ask = ConsumerSendMessageBack(
            offset=message.commit_log_offset,
            group=self._caller.plain_name(self._group),
            delay_level=_DEAD,
            origin_msg_id=message.message_id,
            origin_topic=message.queue.topic,
            unit_mode=False,
        )
        timeout = self._cluster.config.request_timeout
        await self._caller.ask(route.master(handle.broker), ask, timeout=timeout)
        await self.ack([message])

    async def close(self) -> None:
        """Give surplus messages back, and stop listening."""
        for early in self._early:
            try:
                await self._hide(early.message, 0.0)
            except errors.RocketMQError as error:
                outages.warn(
                    log, error, "cannot give a message back; it is redelivered after its invisible time"
                )
                break
        self.let_go()

    def let_go(self) -> None:
        """Stop listening without notifying brokers."""
        if self._extensions is not None:
            self._extensions.release_all()
        self._early.clear()
        self._inbox.close()

    async def _ask(
        self, topic: str, broker: str, code: int, ext: dict[str, str], body: bytes | None = None
    ) -> Call:
        route = await self._cluster.routes.subscribe(topic, self._caller)
        timeout = self._cluster.config.request_timeout
        call = await self._caller.call(route.master(broker), code, ext, body, timeout=timeout)
        if call.code != ResponseCode.SUCCESS:
            raise refusals.from_response(call.code, call.remark, broker=broker, topic=topic)
        return call
