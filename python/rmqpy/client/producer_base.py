"""Base of both producers, in threads and in event loops: settings, the one way to send, the rule for retries.

Owns a producer's hold of a cluster connection and its native sender. A send is tried by the native half, which chooses
the queue; a reason that keeps it from starting is removed here, and it is tried again. Written once, as coroutines over
a `Caller`.
"""

# ruff: noqa: ASYNC109 - a timeout bounds the send, not the wait
from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import Completions, NotSent, Sender, SendFuture
from rmqpy.client import retry
from rmqpy.client.accepted import Accepted
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.done_callbacks import DoneCallbacks
from rmqpy.client.interceptors import ProducerInterceptor, after_send, before_send
from rmqpy.client.lifetime import Lifetime
from rmqpy.client.message_arguments import Chosen, chosen, complete, topic_of
from rmqpy.client.observers import EVERYWHERE, ObservedSends, SendObserver
from rmqpy.client.requests import Requests
from rmqpy.client.routes import TEMPLATE_QUEUES, Route
from rmqpy.client.selectors import QueueSelector
from rmqpy.config.arguments import check_types
from rmqpy.config.client import Address, ClientConfig, seconds
from rmqpy.message import Body, Message, MessageFields, MessageQueue, SendResult
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting.client import Caller

if TYPE_CHECKING:
    from rmqpy.client.producer_trace import ProducerTrace
    from rmqpy.client.transaction_checks import GroupChecker, TransactionChecker

log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_GROUP: Final = "rmqpy"
#: Time for one-way sends to leave in, when the last client closes.
CLOSE_GRACE_S: Final = 0.2
#: Bytes of a message in a batch beside body and properties: its frame, and the id it gets.
_MEMBER_BYTES: Final = 22 + 32
#: A route that is being looked up again is used meanwhile, and asked for so often.
_ROUTE_REUSE_S: Final = 0.01

AnnouncedOutcomes = Literal["never", "failures", "always"]


class ProducerBase(Lifetime, ABC):
    """Settings, sending and retries of both producers."""

    _NOUN = "producer"

    #: A send without room waits for some in the native half, blocking its thread.
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
        """`retry_not_stored`: try another broker also when the message is stored, but not flushed or copied as the
        broker promises. `max_in_flight` and `max_buffered_bytes` bound what `submit` has under way, and the
        first the requests that wait for their replies; `when_full` says what happens then. `selector` is round robin
        unless given; a sharding key goes before it.
        `latency_fault_tolerance`: without a selector or key, a broker that took half a second or failed is passed over
        for 2 to 30 s, as long as there is another. `linger`: seconds that a single send waits for others of its topic,
        to travel as one batch; what `Producer.submit` starts, which returns at once, does not. `transaction_checker`
        decides about transactions of the group that nobody has ended, this or an earlier process: it gets the message,
        on a thread of its own, and returns a `TransactionState`, `True` (commit), `False` (roll back) or `None`
        (unknown: ask again). `interceptors` see every message and its outcome. `trace`: note what is sent in
        RocketMQ's topic of traces, or the one of that name, behind each send and on a thread of its own."""
        check_types(
            group=(group, str | None),
            retries=(retries, int),
            retry_not_stored=(retry_not_stored, bool),
            compress_above=(compress_above, int | None),
            compression=(compression, str),
            max_message_size=(max_message_size, int),
            max_in_flight=(max_in_flight, int),
            max_buffered_bytes=(max_buffered_bytes, int),
            selector=(selector, Callable | None),
            latency_fault_tolerance=(latency_fault_tolerance, bool),
            transaction_checker=(transaction_checker, Callable | None),
            trace=(trace, bool | str),
        )
        if when_full not in ("wait", "raise"):
            raise errors.ConfigError(f"when_full is 'wait' or 'raise', not {when_full!r}")
        if transaction_checker is not None:
            self._check_checker(transaction_checker, group)
        super().__init__(namesrv)
        self._retries = retries
        self._is_waiting_when_full = when_full == "wait"
        self._selector = selector
        #: The queues among which the selector has chosen, by topic.
        self._selectable: dict[str, tuple[Route, frozenset[MessageQueue]]] = {}
        self._interceptors = tuple(interceptors)
        self._trace: ProducerTrace | None = None
        self._observed: ObservedSends | None = None
        self._observe(trace, group or DEFAULT_GROUP)
        self._linger_s = seconds(linger, "linger")
        self._in_flight_max = max_in_flight
        #: Nothing of what is submitted is different from the ordinary, nor of what is sent.
        self._is_plain = selector is None and not self._interceptors
        self._sends_at_once = self._is_plain and not self._linger_s > 0
        self._compress_above = compress_above
        self._body_bytes_max = max_message_size
        self._send_timeout_s = seconds(send_timeout, "send_timeout")
        self.group = group or DEFAULT_GROUP
        self._cluster = ClusterConnection.hold(self.config)
        self._completions = Completions()
        self._done_callbacks = DoneCallbacks()
        self._accepted = Accepted()
        #: Nothing is sent any more. From `is_closed` on, nothing more is accepted.
        self._has_ended = False
        self._has_left = False
        try:
            self._sender = Sender(
                self._cluster.client,
                self._completions,
                group=self.group,
                # The native half compresses bodies of at least so many bytes.
                compress_above=None if compress_above is None else compress_above + 1,
                compression=compression,
                template_queues=TEMPLATE_QUEUES,
                max_in_flight=max_in_flight,
                max_buffered_bytes=max_buffered_bytes,
                retry_not_safe=retry_not_stored,
                timeout=self._send_timeout_s,
                waits_for_room=self._IS_BLOCKING and self._is_waiting_when_full,
                body_bytes_max=max_message_size,
                avoids_slow_brokers=latency_fault_tolerance,
                learns_regions=self._trace is not None,
                add_callback=self._done_callbacks.add,
            )
        except BaseException:
            self._cluster.release()
            raise
        self._checker: GroupChecker | None = None
        if transaction_checker is not None:
            from rmqpy.client.transaction_checks import GroupChecker

            decided = None if self._trace is None else self._trace.decided
            self._checker = GroupChecker(self.group, transaction_checker, decided)
            self._cluster.transaction_checks.join(self._checker)
        self._cluster.heartbeats.join(self.group, is_asked=self._checker is not None)
        self._requests = Requests(self._cluster, max_in_flight, is_waiting=self._is_waiting_when_full)
        self.is_closed = False
        self._begin()

    @property
    def dropped_traces(self) -> int:
        """Notes of the message trace that were dropped: too many waited, or no broker took them."""
        return 0 if self._trace is None else self._trace.dispatcher.dropped

    def _release(self) -> None:
        self._has_ended = True
        self._completions.close()
        self._leave()
        self._close_trace(0.0)

    def _leave(self) -> None:
        """Let go of the cluster. Idempotent."""
        if self._has_left:
            return
        self._has_left = True
        self._requests.close()
        self._cluster.heartbeats.leave(self.group, is_asked=self._checker is not None)
        if self._checker is not None:
            self._cluster.transaction_checks.leave(self._checker)
        self._cluster.release(grace_s=CLOSE_GRACE_S)

    def _observe(self, trace: bool | str, group: str) -> None:
        """Have sends seen by trace and telemetry, where there is some."""
        observers: list[SendObserver] = [each.sends(self.config, group) for each in EVERYWHERE]
        if trace:
            from rmqpy.client.producer_trace import ProducerTrace

            self._trace = ProducerTrace(self.config, trace, group, self._region_of)
            observers.append(self._trace)
        if observers:
            self._observed = ObservedSends(observers)
            self._interceptors = (*self._interceptors, self._observed)

    def _close_trace(self, timeout_s: float | None = None) -> None:
        """Let notes of the trace leave; to be called last."""
        if self._trace is not None:
            self._trace.dispatcher.close(timeout_s)

    def _region_of(self, broker: str) -> str | None:
        return self._sender.region(broker)

    @abstractmethod
    def _begin(self) -> None:
        """Make what only one kind of producer has."""

    @cached_property
    @abstractmethod
    def _caller(self) -> Caller:
        """The way to wait for routes."""

    @abstractmethod
    async def _in_turn(self, send: Callable[[], T | NotSent]) -> T | NotSent:
        """Try a send, behind those that wait for room."""

    @abstractmethod
    async def _stored(self, topic: str, send: Callable[..., SendFuture | NotSent]) -> list[SendResult]:
        """Start a send, which takes `announce` and `token`, and wait for its end."""

    def _check_checker(self, checker: TransactionChecker, group: str | None) -> None:
        if not group:
            raise errors.ConfigError(
                "a transaction_checker needs a group",
                hint="name the application: Producer(group='shop', ...)",
            )

    # ---- timed messages ----------------------------------------------------------------------------------

    async def _recall(self, topic: str, handle: str, *, timeout: float | timedelta | None = None) -> str:
        """Take back a timed message that still waits; its id. `handle` is the `recall_handle` of its `SendResult`.

        It is not delivered then. Brokers take a message back until the second begins (`timerPrecisionMs`) in which
        it is due; the same handle may be used again. Raises `RecallError` when it is too late or the handle is of no
        message to this topic, and `Unsupported` where brokers do not take messages back (`recallMessageEnable`).
        """
        check_types(topic=(topic, str), handle=(handle, str))
        self._check_open()
        # Few producers take anything back.
        from rmqpy.client.recall import recall

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
        """Start sending a message, or a body to a topic. `refused`: it was tried before, to no avail."""
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
        """Send without an answer: fast, and a loss goes unnoticed."""
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
        """Send messages of one topic side by side into one queue, in order; one result for each.

        Cut by size where one request cannot hold them. Raises `SendError` when a part fails: the parts before it
        are stored.
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
                # What follows goes behind what is stored.
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
        """The queues of a topic that take messages, sorted."""
        self._check_open()
        return list((await self._route(topic)).writable)

    async def _start(self, topic: str, send: Callable[[], T | NotSent], refused: NotSent | None = None) -> T:
        """Try a send until it starts, removing what keeps it from that."""
        while True:
            if refused is not None:
                if refused.reason == "no_room":
                    raise errors.BufferFull(f"{self._sender.in_flight} messages are on their way")
                self._learn(await self._route(topic))
            sent = await self._in_turn(send)
            if not isinstance(sent, NotSent):
                return sent
            refused = sent

    def _intercept(self, message: Message | str, body: Body | None) -> Message:
        """The message that interceptors want sent."""
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
        """Tell interceptors the end of a message that they have seen."""
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
        """The queue the user chose, by argument or selector; `None` leaves it to sharding key or rotation."""
        if queue is not None:
            check_types(queue=(queue, MessageQueue))
            if queue.topic != message.topic:
                raise ValueError(f"{queue} is no queue of topic {message.topic}")
            return chosen(await self._route(message.topic), queue)
        if self._selector is None or message.sharding_key is not None:
            return None
        route = await self._route(message.topic)
        found = self._selector(message, route.writable)
        if found not in self._queues_of(route):
            raise ValueError(
                f"the selector chose {found!r}, which is not among the queues of {message.topic}"
            )
        return chosen(route, found, is_pinned=False)

    def _queues_of(self, route: Route) -> Collection[MessageQueue]:
        """The writable queues of a route, to look one up."""
        known = self._selectable.get(route.topic)
        if known is None or known[0] is not route:
            known = self._selectable[route.topic] = (route, frozenset(route.writable))
        return known[1]

    async def _route(self, topic: str) -> Route:
        route = await self._cluster.routes.publish(topic, self._caller)
        self._cluster.heartbeats.learn(route)
        return route

    def _learn(self, route: Route) -> None:
        """Let the native half choose among the queues of this route, while it is fresh."""
        queues = [(route.sender(each.broker), each.broker, each.queue_id) for each in route.writable]
        fresh_s = max(self._cluster.routes.fresh_s(route.topic), _ROUTE_REUSE_S)
        self._sender.learn(route.topic, queues, fresh_s)

    def _decide(self, future: SendFuture, *, has_paused: bool = False) -> float:
        """After a failed attempt: the next one, or the end. Never waits.

        Returns the seconds after which to decide again, having paused; 0 when that was all.
        """
        try:
            pause = self._try_again(future, has_paused)
        except errors.RocketMQError:
            pause = None
        except Exception:
            # The thread that decides has all other sends to see to.
            log.exception("a send to %s is given up", future.topic)
            pause = None
        if pause is None:
            future._give_up()
        return pause or 0.0

    def _try_again(self, future: SendFuture, has_paused: bool) -> float | None:
        """Begin the next attempt, or say after how many seconds to; None where there is none."""
        is_gone = future._attempts[-1][4] == ResponseCode.TOPIC_NOT_EXIST
        self._cluster.routes.doubt(future.topic, is_gone=is_gone)
        self._sender.doubt(future.topic)
        route = self._cluster.routes.cached(future.topic, self._caller)
        if route is None or self._has_ended:
            return None
        queue = retry.next_queue(future, route, self._retries, self._sender.is_slow)
        if queue is None:
            return None
        pause = 0.0 if has_paused else retry.pause_s(future, queue)
        if not pause:
            self._sender.again(future, route.sender(queue.broker), queue.broker, queue.queue_id)
        return pause
