"""Base of both producers: settings, the single path of a send, and retries.

Owns a producer's hold of a cluster connection and its native sender. The native module picks the queue and tries the
send. When it cannot start, this code removes the reason (no route, no room) and tries again. The blocking and the
asynchronous producer share this code: coroutines that wait through a `Caller`.
"""

# ruff: noqa: ASYNC109 - a timeout bounds the send, not the wait
from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import Completions, NotSent, Sender, SendFuture
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.done_callbacks import DoneCallbacks
from rmqpy.client.interceptors import ProducerInterceptor, after_send, before_send
from rmqpy.client.lifetime.client import Lifetime
from rmqpy.client.observers import EVERYWHERE, ObservedSends, SendObserver
from rmqpy.client.producer import retry
from rmqpy.client.producer.accepted import Accepted
from rmqpy.client.producer.message_arguments import Chosen, chosen, complete, topic_of
from rmqpy.client.producer.requests.requests import Requests
from rmqpy.client.producer.selectors import QueueSelector
from rmqpy.client.producer.silence import SilentMasters
from rmqpy.client.producer.transactions.decisions import Decisions
from rmqpy.client.producer.transactions.transactions import Transactions
from rmqpy.client.routes import TEMPLATE_QUEUES, Route
from rmqpy.config.arguments import check_types
from rmqpy.config.client import Address, ClientConfig, seconds
from rmqpy.config.sender import SenderOptions
from rmqpy.message import Body, Message, MessageFields, MessageQueue, ReceivedMessage, SendResult
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting.client import Caller

if TYPE_CHECKING:
    from rmqpy.client.producer.transactions.checks import TransactionChecker
    from rmqpy.client.trace.dispatcher import OpenSend
    from rmqpy.client.trace.producer import ProducerTrace

log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_GROUP: Final = "rmqpy"
#: Time for one-way sends to leave when the last client closes.
CLOSE_GRACE_S: Final = 0.2
#: Bytes of a message in a batch in addition to body and properties: its frame and id.
_MEMBER_BYTES: Final = 22 + 32
#: A route that is due is used for this long before the look-up is checked again.
_ROUTE_REUSE_S: Final = 0.01

AnnouncedOutcomes = Literal["never", "failures", "always"]


class ProducerBase(Lifetime, ABC):
    """Settings, sending and retries of both producers."""

    _NOUN = "producer"

    #: True if a send without room waits in the native module and blocks its thread.
    _IS_BLOCKING: ClassVar[bool]

    def __init__(
        self,
        namesrv: Address | ClientConfig | None = None,
        *,
        group: str | None = None,
        send_timeout: float | timedelta = 3.0,
        retries: int = 2,
        retry_not_stored: bool = False,
        compress_above: int | None = 4096,
        compression: Literal["zlib", "lz4", "zstd"] = "zlib",
        max_message_size: int = 4 << 20,
        max_in_flight: int = 1024,
        max_buffered_bytes: int = 64 << 20,
        when_full: Literal["wait", "raise"] = "wait",
        linger: float | timedelta = 0.0,
        selector: QueueSelector | None = None,
        latency_fault_tolerance: bool = False,
        transaction_checker: TransactionChecker | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        trace: bool | str = False,
    ) -> None:
        """`retry_not_stored`: try another broker also if the message is stored, but not flushed or copied as the broker
        promises. `max_in_flight` and `max_buffered_bytes` bound the sends of `submit` in flight, and the first also the
        requests that wait for replies; `when_full` says whether to wait or raise at the limit. `selector` is round
        robin by default; a sharding key has precedence. `latency_fault_tolerance`: without a selector or key, avoid
        brokers that took half a second or failed for 2 to 30 s, while another broker is available. `linger`: seconds
        that a single send waits for others of its topic to leave as one batch; `Producer.submit` does not linger.
        `transaction_checker` decides about open transactions of the group, of this or an earlier process: it gets the
        message on its own thread, and returns a `TransactionState`, `True` (commit), `False` (roll back) or `None`
        (unknown: ask again). `interceptors` see every message and its outcome. `trace` records sent messages in
        RocketMQ's trace topic, or in the topic of this name, in the background."""
        check_types(
            group=(group, str | None),
            retries=(retries, int),
            selector=(selector, Callable | None),
            transaction_checker=(transaction_checker, Callable | None),
            trace=(trace, bool | str),
        )
        if when_full not in ("wait", "raise"):
            raise errors.ConfigError(f"when_full must be 'wait' or 'raise', not {when_full!r}")
        self._done_callbacks = DoneCallbacks()
        options = SenderOptions(
            group=group or DEFAULT_GROUP,
            send_timeout=seconds(send_timeout, "send_timeout"),
            compress_above=compress_above,
            compression=compression,
            template_queues=TEMPLATE_QUEUES,
            max_message_size=max_message_size,
            max_in_flight=max_in_flight,
            max_buffered_bytes=max_buffered_bytes,
            retry_not_stored=retry_not_stored,
            latency_fault_tolerance=latency_fault_tolerance,
            waits_for_room=self._IS_BLOCKING and when_full == "wait",
            learns_regions=bool(trace),
            add_callback=self._done_callbacks.add,
        )
        if transaction_checker is not None:
            self._check_checker(transaction_checker, group)
        super().__init__(namesrv)
        self._retries = retries
        self._is_waiting_when_full = when_full == "wait"
        self._selector = selector
        #: The queues that the selector may return, by topic.
        self._selectable: dict[str, tuple[Route, frozenset[MessageQueue]]] = {}
        self._interceptors = tuple(interceptors)
        self._trace: ProducerTrace | None = None
        self._observed: ObservedSends | None = None
        self._observe(trace, group or DEFAULT_GROUP)
        self._linger_s = seconds(linger, "linger")
        self._in_flight_max = max_in_flight
        #: True if sends need no selector, interceptors or other extra steps.
        self._is_plain = selector is None and not self._interceptors
        self._sends_at_once = self._is_plain and not self._linger_s > 0
        self._compress_above = compress_above
        self._send_timeout_s = options.send_timeout
        self.group = options.group
        self._completions = Completions()
        self._cluster = ClusterConnection.hold(self.config)
        self._silent = SilentMasters(self._cluster)
        self._accepted = Accepted()
        #: True if nothing can be sent any more. `is_closed` is set earlier, when no new messages are accepted.
        self._has_ended = False
        self._has_left = False
        try:
            self._sender = Sender(self._cluster.client, self._completions, options)
        except BaseException:
            self._cluster.release()
            raise
        self._transactions = Transactions(
            self._cluster,
            self.group,
            partial(Decisions, self._cluster, group=self.group, timeout_s=self._send_timeout_s),
            transaction_checker,
            is_named=self.group != DEFAULT_GROUP,
            observed=self._observed,
            trace=self._trace,
        )
        self._cluster.heartbeats.join(self.group, is_asked=self._transactions.has_checker)
        self._requests = Requests(self._cluster, max_in_flight, is_waiting=self._is_waiting_when_full)
        self.is_closed = False
        self._begin()

    @property
    def dropped_traces(self) -> int:
        """Trace records that were dropped: the queue was full, or no broker accepted them."""
        return 0 if self._trace is None else self._trace.dispatcher.dropped

    def _release(self) -> None:
        self._has_ended = True
        self._completions.close()
        self._leave()
        self._close_trace(0.0)

    def _leave(self) -> None:
        """Release the cluster connection. Idempotent."""
        if self._has_left:
            return
        self._has_left = True
        self._requests.close()
        self._cluster.heartbeats.leave(self.group, is_asked=self._transactions.has_checker)
        self._transactions.close()
        self._cluster.release(grace_s=CLOSE_GRACE_S)

    def _observe(self, trace: bool | str, group: str) -> None:
        """Attach trace and telemetry to sends, if enabled."""
        observers: list[SendObserver] = [each.sends(self.config, group) for each in EVERYWHERE]
        if trace:
            from rmqpy.client.trace.producer import ProducerTrace

            self._trace = ProducerTrace(self.config, trace, group, self._region_of, self._open_send())
            observers.append(self._trace)
        if observers:
            self._observed = ObservedSends(observers)
            self._interceptors = (*self._interceptors, self._observed)

    def _close_trace(self, timeout_s: float | None = None) -> None:
        """Send the remaining trace records; called last."""
        if self._trace is not None:
            self._trace.dispatcher.close(timeout_s)

    @staticmethod
    @abstractmethod
    def _open_send() -> OpenSend:
        """Return the function that opens a producer for traces."""

    def _region_of(self, broker: str) -> str | None:
        return self._sender.region(broker)

    @abstractmethod
    def _begin(self) -> None:
        """Create what only this kind of producer needs."""

    @cached_property
    @abstractmethod
    def _caller(self) -> Caller:
        """The caller that waits for routes."""

    @abstractmethod
    async def _in_turn(self, send: Callable[[], T | NotSent]) -> T | NotSent:
        """Try a send after the sends that wait for room."""

    @abstractmethod
    async def _stored(self, topic: str, send: Callable[..., SendFuture | NotSent]) -> list[SendResult]:
        """Start a send, which takes `announce` and `token`, and wait for its result."""

    def _check_checker(self, checker: TransactionChecker, group: str | None) -> None:
        if not group:
            raise errors.ConfigError(
                "a transaction_checker needs a group",
                hint="name the application: Producer(group='shop', ...)",
            )

    # ---- requests ----------------------------------------------------------------------------------------

    @property
    def late_replies(self) -> int:
        """Replies that were dropped since the first request, because they arrived after the timeout or a second time.
        Counted for all producers of this process with the same configuration."""
        return self._requests.late_replies

    async def _request(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta = 3.0,
        **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for its reply, the `Reply` that a consumer's handler returns.

        `timeout` bounds the whole call: waiting for room (`max_in_flight`), the send and the reply. Raises
        `RequestTimeout` when no reply arrives in time: no consumer reads the topic, the handler took too long, or it
        failed, and the request is delivered again. A later reply is dropped. Raises `SendError` if the send fails, and
        `BufferFull` if too many requests are open.
        """
        ready = await self._requests.prepare(self, message, body, queue, timeout, fields)
        try:
            return await self._requests.finish(self, ready)
        finally:
            ready.open.close()

    # ---- messages that are stored once -------------------------------------------------------------------

    async def _send_once(
        self,
        message: Message | str,
        body: Body | None,
        dedup: str,
        timeout: float | timedelta | None,
    ) -> SendResult:
        """Send a message unless one with this key was stored within the window."""
        check_types(dedup=(dedup, str))
        # Few producers deduplicate.
        from rmqpy.client.producer.once import send_once

        self._check_open()
        message = self._intercept(message, body)
        limit = self._send_timeout_s if timeout is None else seconds(timeout, row="send_timeout")
        try:
            with self._accepted:
                sent = await send_once(self._cluster, self._caller, self.group, message, dedup, limit)
        except BaseException as error:
            self._tell(message, error)
            raise
        self._tell(message, sent)
        return sent

    # ---- timed messages ----------------------------------------------------------------------------------

    async def _recall(self, topic: str, handle: str, *, timeout: float | timedelta | None = None) -> str:
        """Cancel a timed message before its delivery, by the `recall_handle` of its `SendResult`; return its id.

        Brokers accept a recall until the second (`timerPrecisionMs`) in which the message is due; the same handle may
        be used again. Raises `RecallError` when it is too late or the handle names no message to this topic, and
        `Unsupported` if brokers do not allow recalls (`recallMessageEnable`).
        """
        check_types(topic=(topic, str), handle=(handle, str))
        self._check_open()
        # Few producers recall messages.
        from rmqpy.client.producer.recall import recall

        limit = self._send_timeout_s if timeout is None else seconds(timeout, row="send_timeout")
        taken_back = await recall(self._cluster, self._caller, self.group, topic, handle, limit)
        if self._trace is not None:
            self._trace.recalled(topic, handle, taken_back)
        return taken_back

    # ---- the one way to send -----------------------------------------------------------------------------

    async def _send(
        self,
        message: Message | str,
        body: Body | None,
        queue: MessageQueue | None,
        timeout: float | timedelta | None,
        *,
        announce: AnnouncedOutcomes,
        token: int = 0,
        refused: NotSent | None = None,
    ) -> SendFuture:
        """Start sending a message, or a body to a topic. `refused` is the reason why an earlier try did not start."""
        self._check_open()
        with self._accepted:
            message, body, to = await self._placed(message, body, queue)
            limit = None if timeout is None else seconds(timeout, row="send_timeout")
            send = partial(
                self._sender.send, message, body, to=to, timeout=limit, announce=announce, token=token
            )
            return await self._start(topic_of(message), send, refused)

    async def _send_oneway(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        **fields: Unpack[MessageFields],
    ) -> None:
        """Send without waiting for a reply: fast, but losses go unnoticed."""
        if fields:
            message, body = complete(message, body, fields)
        if self._interceptors:
            message, body = self._intercept(message, body), None
        try:
            self._check_open()
            with self._accepted:
                message, body, to = await self._placed(message, body, queue)
                await self._start(topic_of(message), partial(self._sender.send_oneway, message, body, to=to))
        except BaseException as error:
            self._tell(message, error)
            raise
        self._tell(message, None)

    async def _send_batch(
        self, messages: Iterable[Message], *, timeout: float | timedelta | None = None
    ) -> list[SendResult]:
        """Send messages of one topic to one queue, in order; return one result for each.

        They are split by size if one request cannot hold them. Raises `SendError` when a part fails: the parts before
        it are stored.
        """
        self._check_open()
        with self._accepted:
            return await self._send_together(self._intercept_all(list(messages)), timeout)

    async def _send_together(
        self, messages: list[Message], timeout: float | timedelta | None = None
    ) -> list[SendResult]:
        limit = None if timeout is None else seconds(timeout, row="send_timeout")
        results: list[SendResult] = []
        begin = 0
        try:
            for end in self._sender.cut(messages, _MEMBER_BYTES):
                part, begin = messages[begin:end], end
                # Later parts follow in the same queue.
                to = await self._choose(part[0], results[-1].queue if results else None)
                send = partial(self._sender.send_batch, part, to=to, timeout=limit)
                results += await self._stored(part[0].topic, send)
        except BaseException as error:
            for message in messages[len(results) :]:
                self._tell(message, error)
            raise
        finally:
            for message, result in zip(messages, results, strict=False):
                self._tell(message, result)
        return results

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic, sorted."""
        self._check_open()
        return list((await self._route(topic)).writable)

    async def _start(self, topic: str, send: Callable[[], T | NotSent], refused: NotSent | None = None) -> T:
        """Try a send until it starts, removing the reasons that prevent it."""
        while True:
            if refused is not None:
                if refused.reason == "no_room":
                    raise errors.BufferFull(f"{self._sender.in_flight} messages are in flight")
                self._learn(await self._led_route(topic))
            sent = await self._in_turn(send)
            if not isinstance(sent, NotSent):
                return sent
            refused = sent

    def _intercept(self, message: Message | str, body: Body | None) -> Message:
        """Return the message as interceptors changed it."""
        if isinstance(message, str) or body is not None:
            message, _ = complete(message, body, {})
        return before_send(self._interceptors, message)

    def _intercept_all(self, messages: list[Message]) -> list[Message]:
        passed: list[Message] = []
        try:
            for message in messages:
                passed.append(before_send(self._interceptors, message))
        except BaseException as error:
            for message in passed:
                self._tell(message, error)
            raise
        return passed

    def _tell(self, message: Message | str, outcome: SendResult | BaseException | None) -> None:
        """Notify interceptors of the end of a message they have seen."""
        if self._interceptors and isinstance(message, Message):
            after_send(self._interceptors, message, outcome)

    async def _placed(
        self, message: Message | str, body: Body | None, queue: MessageQueue | None
    ) -> tuple[Message | str, Body | None, Chosen | None]:
        if queue is None and self._selector is None:
            return message, body, None
        if isinstance(message, str):
            message, body = complete(message, body, {})
        return message, body, await self._choose(message, queue)

    async def _choose(self, message: Message, queue: MessageQueue | None) -> Chosen | None:
        """Return the queue of the argument or the selector; `None` leaves the choice to sharding key, lite topic or
        rotation."""
        if queue is not None:
            check_types(queue=(queue, MessageQueue))
            if queue.topic != message.topic:
                raise ValueError(f"{queue} is not a queue of topic {message.topic}")
            return chosen(await self._route(message.topic), queue)
        if self._selector is None or message.sharding_key is not None or message.lite_topic is not None:
            return None
        route = await self._route(message.topic)
        found = self._selector(message, route.writable)
        if found not in self._queues_of(route):
            raise ValueError(
                f"the selector chose {found!r}, which is not among the queues of {message.topic}"
            )
        return chosen(route, found, is_pinned=False)

    def _queues_of(self, route: Route) -> Collection[MessageQueue]:
        """Return the writable queues of a route, for membership tests."""
        known = self._selectable.get(route.topic)
        if known is None or known[0] is not route:
            known = self._selectable[route.topic] = (route, frozenset(route.writable))
        return known[1]

    async def _route(self, topic: str) -> Route:
        route = await self._cluster.routes.publish(topic, self._caller)
        self._cluster.heartbeats.learn(route)
        return route

    async def _led_route(self, topic: str) -> Route:
        """Return the route for sending. While no broker has a master, but one has replicas that may lead soon, wait up
        to the timeout of a send."""
        until = time.monotonic() + self._send_timeout_s
        while True:
            try:
                return await self._route(topic)
            except errors.NoWritableQueue:
                known = self._cluster.routes.cached(topic, self._caller)
                may_wait = self._retries > 0 and not self._has_ended and time.monotonic() < until
                if not may_wait or known is None or not known.lacks_master:
                    raise
            await self._caller.sleep(retry.SUCCESSION_PAUSE_S)

    def _learn(self, route: Route) -> None:
        """Give the queues of this route to the native module, for as long as the route is fresh."""
        queues = [(route.sender(route.home(each)), each.broker, each.queue_id) for each in route.writable]
        fresh_s = max(self._cluster.routes.fresh_s(route.topic), _ROUTE_REUSE_S)
        self._sender.learn(route.topic, queues, fresh_s)

    def _decide(self, future: SendFuture, *, has_paused: bool = False) -> float:
        """Start the next attempt of a failed send, or end the send. Never waits.

        Returns the seconds to pause before the next call; 0 if none is needed.
        """
        try:
            pause = self._try_again(future, has_paused)
        except errors.RocketMQError:
            pause = None
        except Exception:
            # The exception must not end the delivery thread of the other sends.
            log.exception("giving up a send to %s", future.topic)
            pause = None
        if pause is None:
            future._give_up()
        return pause or 0.0

    def _try_again(self, future: SendFuture, has_paused: bool) -> float | None:
        """Start the next attempt, or return the pause before it in seconds; None if there is none."""
        is_gone = future._attempts[-1].code == ResponseCode.TOPIC_NOT_EXIST
        self._cluster.routes.doubt(future.topic, is_gone=is_gone)
        self._sender.doubt(future.topic)
        route = self._cluster.routes.cached(future.topic, self._caller)
        if route is None or self._has_ended:
            return None
        queue = retry.next_queue(future, route, self._retries, self._sender.is_slow)
        if queue is None or not route.has_master(route.home(queue)):
            return retry.succession_pause_s(future, route, self._retries)
        pause = 0.0 if has_paused else retry.pause_s(future, route, queue, self._retries)
        if not pause:
            address = route.sender(route.home(queue))
            self._sender.again(future, address, queue.broker, queue.queue_id)
        return pause
