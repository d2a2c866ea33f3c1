"""`Producer`: sending from threads.

A message that is stored at the first attempt costs its sender no thread switch. What was submitted and failed is
decided on one delivery thread, which also runs callbacks; it starts with the first `submit`.

Invariant: each send ends once, stored or given up, within its timeout.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property, partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import NotSent, Rows, SendFuture
from rmqpy.client import outcome
from rmqpy.client.delivery import deliver
from rmqpy.client.linger import ThreadLinger, may_share
from rmqpy.client.message_arguments import complete, row_place
from rmqpy.client.requesting import RequestingProducer
from rmqpy.client.transactions import Transaction
from rmqpy.config.arguments import check_types
from rmqpy.config.client import seconds
from rmqpy.message import Body, Message, MessageFields, MessageQueue, ReceivedMessage, SendResult
from rmqpy.remoting.client import BlockingCaller, blocking, run

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rmqpy.client.request_delivery import RequestCallback, RequestDelivery
    from rmqpy.client.transaction_checks import TransactionChecker

T = TypeVar("T")

log = logging.getLogger(__name__)

Callback = Callable[[SendResult | errors.RocketMQError], None]


class Producer(RequestingProducer):
    """Sends messages. Thread-safe; make one and keep it.

    ::

        with rmqpy.Producer("127.0.0.1:9876") as producer:
            producer.send("orders", b"...", tag="paid", keys="A-1")

    A send ends within its timeout: stored, or with `SendError`. After a failed attempt it is tried on other brokers,
    up to `retries` times; a broker that stored a message and could not say so has it twice then. Sends go on while
    every name server is down, to the brokers known so far.
    """

    _IS_BLOCKING = True

    def _check_checker(self, checker: TransactionChecker, group: str | None) -> None:
        super()._check_checker(checker, group)
        if iscoroutinefunction(checker):
            raise TypeError("transaction_checker is a coroutine function: use AsyncProducer")

    def _begin(self) -> None:
        self._linger = ThreadLinger(self._linger_s)
        #: As that of `DoneCallbacks`.
        self._lock = threading.RLock()
        self._delivery: threading.Thread | None = None
        self._submitted_requests: RequestDelivery | None = None
        _OPEN.add(self)

    def send(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send and wait for the broker. `send(Message(...))`, or `send(topic, body, tag=..., keys=...)`.

        Equal sharding keys go to one queue. Raises `SendError` with every attempt listed, `RouteError` when there is
        nowhere to send to, and `ValueError` for what no broker takes.
        """
        if fields:
            message, body = complete(message, body, fields)
        sent = None
        if queue is None and timeout is None and self._sends_at_once and not self.is_closed:
            # One call, where nothing is out of the ordinary.
            sent = self._sender.send(message, body, announce="never")
        if not isinstance(sent, SendFuture):
            if self._interceptors or self._linger_s > 0:
                return self._send_otherwise(message, body, queue, timeout)
            sent = run(self._send(message, body, queue, timeout, announce="never", refused=sent))
        return self._settled(sent).result()

    def submit(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        callback: Callback | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendFuture:
        """Start sending and return at once. `future.result()` waits.

        Blocks, or raises `BufferFull`, only while the in-flight budget is used up. `callback` gets the result or
        the error, on one thread all callbacks share. A producer's `linger` is for `send`: this leaves at once.
        """
        if self._delivery is None:
            self._deliver()
        if fields:
            message, body = complete(message, body, fields)
        if callback is None:
            sent = None
            if queue is None and timeout is None and self._is_plain and not self.is_closed:
                sent = self._sender.send(message, body)
            if isinstance(sent, SendFuture):
                return sent
            if not self._interceptors:
                return run(self._send(message, body, queue, timeout, announce="failures", refused=sent))
        elif not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        if self._interceptors:
            message, body = self._intercept(message, body), None
            callback = self._telling(message, callback)
        assert callback is not None, "an ordinary send was started above"
        told = callback
        token = self._done_callbacks.expect(lambda future: told(outcome.of(future)))
        try:
            future = run(self._send(message, body, queue, timeout, announce="always", token=token))
        except BaseException as error:
            self._done_callbacks.cancel(token)
            self._tell(message, error)
            raise
        self._done_callbacks.started(token, future)
        return future

    send_oneway = blocking(RequestingProducer._send_oneway)
    send_batch = blocking(RequestingProducer._send_batch)
    request = blocking(RequestingProducer._request)
    queues = blocking(RequestingProducer._queues)
    recall = blocking(RequestingProducer._recall)

    def submit_request(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta = 3.0,
        callback: RequestCallback | None = None,
        **fields: Unpack[MessageFields],
    ) -> Future[ReceivedMessage]:
        """Start a request and return at once; arguments and errors as of `request`. `future.result()` waits for the
        reply.

        Blocks, or raises `BufferFull`, only while `max_in_flight` requests wait for their replies. `callback` gets the
        reply or the error, on one thread the callbacks of this producer's requests share.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        self._deliver()
        ready = run(self._ready(message, body, queue, timeout, fields))
        token = self._done_callbacks.expect(lambda future: self._request_sent(ready, outcome.of(future)))
        try:
            start = partial(self._starting(ready), announce="always", token=token)
            self._done_callbacks.started(token, run(self._start(ready.message.topic, start)))
        except BaseException as error:
            self._done_callbacks.cancel(token)
            ready.open.close()
            self._tell(ready.message, error)
            raise
        return self._request_delivery().begin(ready.open, callback)

    def submit_rows(
        self,
        batch: object,
        *,
        topic: str | None = None,
        id_seed: bytes | None = None,
        first_row: int = 0,
        properties: Mapping[str, str] | None = None,
        placement: Literal["turn", "hash", "column"] = "turn",
        batch_messages: int = 64,
        batch_bytes: int = 1 << 20,
        create_topics: bool = True,
    ) -> Iterator[SendFuture]:
        """Send each row of an Arrow batch or table; a future for every request, while it is on its way.

        ::

            rows = pyarrow.table({"body": [b"first", b"second"], "tags": ["paid", None]})
            for future in list(producer.submit_rows(rows, topic="orders")):
                future.result()

        Columns: `body` (binary) and `topic`, unless it is given; where they are there `tags`, `keys` (a text that
        separates them by spaces, or a list), `shardingKey`, `queueId`, `brokerName`, `flag`, `properties` (map),
        `delayLevel`, `deliverTimestamp` (milliseconds), `msgId`. A row with a `queueId` goes there, one with a
        `shardingKey` where its hash points; `placement` says where the others go: anywhere in turn, by the hash of
        their keys, or nowhere. Rows of one queue go in order, up to `batch_messages` and `batch_bytes` in one
        request; large bodies and delayed rows go alone.

        With an `id_seed`, ids are a hash of it and of the column `identity`, else of the row's number counted from
        `first_row`: what is sent again has the same ids. Raises `ValueError` for a row that no broker takes; those
        before it are on their way. A producer with interceptors, which see messages, or `trace` sends no rows.
        """
        if self._interceptors:
            raise errors.ConfigError(
                "rows pass no interceptors, and are not traced", hint="use a producer without either for rows"
            )
        check_types(
            first_row=(first_row, int), batch_messages=(batch_messages, int), batch_bytes=(batch_bytes, int)
        )
        self._check_open()
        self._deliver()
        limit = self._compress_above
        rows = Rows(
            batch,
            topic=topic,
            id_seed=id_seed,
            first_row=first_row,
            properties=properties,
            compress_above=None if limit is None else limit + 1,
        )
        for name in rows.topics():
            route = run(self._route(name))
            if route.is_borrowed and not create_topics:
                raise errors.TopicNotFound(f"topic {name!r} does not exist", topic=name)
            send_batches = rows.send_batches(
                name,
                queues=len(route.writable),
                placement=placement,
                messages_max=batch_messages,
                bytes_max=batch_bytes,
            )
            for send_batch in send_batches:
                to = row_place(send_batch, route)
                self._check_open()
                with self._accepted:
                    started = run(
                        self._start(
                            name, partial(self._sender.send_rows, rows, send_batch, topic=name, to=to)
                        )
                    )
                yield started

    def transaction(
        self, message: Message | str, body: Body | None = None, /, **fields: Unpack[MessageFields]
    ) -> Transaction:
        """A message that consumers see if the block succeeds; arguments as of `send`.

        ::

            with producer.transaction("orders", b"...", keys="A-1"):
                database.commit()

        Entering stores the message where nobody sees it, and raises as `send` does; leaving commits it. An exception
        rolls back, and is raised on. `TransactionError` says that the broker has not confirmed a commit. What
        nobody decides, a `transaction_checker` of the producer's `group` is asked about; a producer without a group has
        no transactions.
        """
        return Transaction(self._transacted(message, body, fields), self._begin_half, self._end_half)

    def flush(self, timeout: float | timedelta | None = None) -> None:
        """Wait until nothing is in flight, what lingers included. Raises `RequestTimeout`."""
        self._check_open()
        self._linger.hurry()
        if not self._drained(timeout):
            left = self._accepted.count + self._sender.in_flight
            raise errors.RequestTimeout(f"{left} messages are still in flight")

    def close(self, timeout: float | timedelta | None = 5.0) -> None:
        """Accept nothing more, let what was accepted finish, for at most `timeout` seconds, then end. Idempotent.

        What was not stored by then fails with `SendError`, and a request that has no reply with `ClosedError`.
        """
        if self._is_forked:
            self.is_closed = True
            return
        with self._lock:
            was_closed, self.is_closed = self.is_closed, True
        if was_closed:
            return
        _OPEN.discard(self)
        try:
            self._linger.hurry(is_last=True)
            self._drained(timeout)
        finally:
            # Also where a user interrupts it. Closing the connections fails what is left, and closing the queue gives
            # it up.
            self._has_ended = True
            self._leave()
            self._completions.close()
            try:
                self._join()
            finally:
                # Behind the callbacks, which note the last messages.
                self._close_trace()
        self._warn_of_failures()

    def _drained(self, timeout: float | timedelta | None) -> bool:
        """Wait until all that was accepted has ended; False when the time passed first."""
        limit = None if timeout is None else seconds(timeout)
        until = None if limit is None else time.monotonic() + limit
        if not self._accepted.wait(limit):
            return False
        return self._sender.flush(None if until is None else max(until - time.monotonic(), 0.0))

    def _join(self) -> None:
        """Wait for the callbacks of what has ended."""
        try:
            if self._delivery is not None and self._delivery is not threading.current_thread():
                self._delivery.join()
        finally:
            if self._submitted_requests is not None:
                self._submitted_requests.close()

    def end_with_owner(self) -> None:
        """Whoever made it closes it, also at the end of the program. For what sends beside a client of the user's."""
        _OPEN.discard(self)

    def _warn_of_failures(self) -> None:
        """Tell of submitted messages that were not sent, where nobody asked for their outcome."""
        failed, first = self._sender.unasked_failures()
        if failed:
            messages = "messages were" if failed > 1 else "message was"
            text = f"{failed} submitted {messages} not sent, and nobody asked for the outcome"
            if first is not None:
                topic, facts = first
                text += f"; the first, to {topic}: {outcome.attempt(topic, facts).error}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def _caller(self) -> BlockingCaller:
        return BlockingCaller(self._cluster.client)

    async def _in_turn(self, send: Callable[[], T | NotSent]) -> T | NotSent:
        # The native half makes this thread wait.
        return send()

    async def _stored(self, topic: str, send: Callable[..., SendFuture | NotSent]) -> list[SendResult]:
        future = await self._start(topic, partial(send, announce="never"))
        return self._settled(future).results()

    def _send_otherwise(
        self,
        message: Message | str,
        body: Body | None,
        queue: MessageQueue | None,
        timeout: float | timedelta | None,
    ) -> SendResult:
        """As `send`, with what interceptors make of it, and in company where it lingers."""
        message = self._intercept(message, body)
        if self._linger_s > 0 and may_share(message, queue, timeout, self._compress_above):
            self._check_open()
            with self._accepted:
                return self._linger.send(message, self._send_gathered)
        try:
            future = run(self._send(message, None, queue, timeout, announce="never"))
            result = self._settled(future).result()
        except BaseException as error:
            self._tell(message, error)
            raise
        self._tell(message, result)
        return result

    def _send_gathered(self, messages: list[Message]) -> list[SendResult]:
        return run(self._send_together(messages))

    def _telling(self, message: Message, callback: Callback | None) -> Callback:
        def call_back(result: SendResult | errors.RocketMQError) -> None:
            self._tell(message, result)
            if callback is not None:
                callback(result)

        return call_back

    def _settled(self, future: SendFuture) -> SendFuture:
        while not future._settle():
            if pause := self._decide(future):
                time.sleep(pause)
                self._decide(future, has_paused=True)
        return future

    def _deliver(self) -> None:
        """Have the delivery thread run: it decides what fails, and calls back."""
        if self._delivery is None:
            self._check_open()
            with self._lock:
                if self._delivery is None:
                    thread = threading.Thread(
                        target=deliver,
                        args=(weakref.ref(self), self._completions, self._done_callbacks),
                        daemon=True,
                    )
                    thread.name = "rmqpy-delivery"
                    thread.start()
                    self._delivery = thread

    def _request_delivery(self) -> RequestDelivery:
        with self._lock:
            if self._submitted_requests is None:
                from rmqpy.client.request_delivery import RequestDelivery

                self._submitted_requests = RequestDelivery()
            return self._submitted_requests

    def _completed(self, future: SendFuture, *, has_paused: bool = False) -> float:
        """An announced future, on the delivery thread; returns what `_decide` does."""
        if not future.done() and (pause := self._decide(future, has_paused=has_paused)):
            return pause
        if future.done():
            self._done_callbacks.call(future)
        return 0.0


#: Producers not closed yet: leaving the program flushes them.
_OPEN: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for producer in list(_OPEN):
        producer.close()
