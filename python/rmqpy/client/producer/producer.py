"""`Producer`: sends from threads.

A message that is stored at the first attempt costs its sender no thread switch. One delivery thread retries submitted
messages that failed, and runs callbacks; it starts with the first `submit`.

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
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import NotSent, Rows, SendFuture
from rmqpy.client import outcome
from rmqpy.client.producer.delivery import deliver
from rmqpy.client.producer.linger import ThreadLinger, may_share
from rmqpy.client.producer.message_arguments import chosen_codec, complete, row_place
from rmqpy.client.producer.producer_base import ProducerBase
from rmqpy.client.producer.silence import SILENT_S
from rmqpy.client.producer.transactions.transaction import Transaction
from rmqpy.config.arguments import check_types
from rmqpy.config.client import ClientConfig, seconds
from rmqpy.message import Body, Message, MessageFields, MessageQueue, ReceivedMessage, SendResult
from rmqpy.remoting.client import BlockingCaller, blocking, run

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rmqpy.client.codecs.codec import Codec
    from rmqpy.client.producer.requests.delivery import RequestCallback
    from rmqpy.client.producer.transactions.checks import TransactionChecker
    from rmqpy.client.producer.typed import TypedTopic
    from rmqpy.client.trace.dispatcher import OpenSend

T = TypeVar("T")
V = TypeVar("V")

log = logging.getLogger(__name__)

Callback = Callable[[SendResult | errors.RocketMQError], None]


class Producer(ProducerBase):
    """Sends messages. Thread-safe; make one and keep it.

    ::

        with rmqpy.Producer("127.0.0.1:9876") as producer:
            producer.send("orders", b"...", tag="paid", keys="A-1")

    A send ends within its timeout: stored, or with `SendError`. After a failed attempt, up to `retries` attempts follow
    on other brokers; if a broker stored the message but its reply was lost, the message is stored twice. Sends continue
    to known brokers while every name server is down.
    """

    _IS_BLOCKING = True

    def _check_checker(self, checker: TransactionChecker, group: str | None) -> None:
        super()._check_checker(checker, group)
        if iscoroutinefunction(checker):
            raise TypeError("transaction_checker is a coroutine function, which needs an AsyncProducer")

    def _begin(self) -> None:
        self._linger = ThreadLinger(self._linger_s)
        #: Reentrant, like the lock of `DoneCallbacks`.
        self._lock = threading.RLock()
        self._delivery: threading.Thread | None = None
        _OPEN.add(self)

    def send(
        self,
        message: Message | str,
        body: Body | None = None,
        /,
        *,
        queue: MessageQueue | None = None,
        timeout: float | timedelta | None = None,
        dedup: str | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send and wait for the broker. `send(Message(...))`, or `send(topic, body, tag=..., keys=...)`.

        A message whose `dedup` key was sent to the topic before, within the broker's `deduplicationWindow` of 10
        minutes, is not stored again: the result is that of the first message, with `is_duplicate`.

        Equal sharding keys go to one queue. Raises `SendError` with every attempt listed, `RouteError` if the topic has
        no queue to send to, and `ValueError` for an invalid message.
        """
        if fields:
            message, body = complete(message, body, fields)
        if dedup is not None:
            if queue is not None:
                raise ValueError("dedup determines the queue: leave out queue")
            return run(self._send_once(message, body, dedup, timeout))
        sent = None
        if queue is None and timeout is None and self._sends_at_once and not self.is_closed:
            # The common case is a single call.
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
        """Start sending and return immediately. `future.result()` waits.

        Blocks, or raises `BufferFull`, only while the in-flight budget is used up. `callback` gets the result or
        the error, on one thread that all callbacks share. `linger` does not delay the message.
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
        notify = callback
        token = self._done_callbacks.expect(lambda future: notify(outcome.of(future)))
        try:
            future = run(self._send(message, body, queue, timeout, announce="always", token=token))
        except BaseException as error:
            self._done_callbacks.cancel(token)
            self._tell(message, error)
            raise
        self._done_callbacks.started(token, future)
        return future

    send_oneway = blocking(ProducerBase._send_oneway)
    send_batch = blocking(ProducerBase._send_batch)
    request = blocking(ProducerBase._request)
    queues = blocking(ProducerBase._queues)
    recall = blocking(ProducerBase._recall)

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
        """Start a request and return immediately; arguments and errors as of `request`. `future.result()` waits for the
        reply.

        Blocks, or raises `BufferFull`, only while `max_in_flight` requests wait for their replies. `callback` gets the
        reply or the error, on one thread the callbacks of this producer's requests share.
        """
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, not {type(callback).__name__}")
        self._deliver()
        ready = run(self._requests.prepare(self, message, body, queue, timeout, fields))
        token = self._done_callbacks.expect(
            lambda future: self._requests.sent(self, ready, outcome.of(future))
        )
        try:
            start = partial(self._requests.starting(self, ready), announce="always", token=token)
            self._done_callbacks.started(token, run(self._start(ready.message.topic, start)))
        except BaseException as error:
            self._done_callbacks.cancel(token)
            ready.open.close()
            self._tell(ready.message, error)
            raise
        return self._requests.deliver(ready, callback)

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
        """Send each row of an Arrow batch or table; yield a future for each request while it is in flight.

        ::

            rows = pyarrow.table({"body": [b"first", b"second"], "tags": ["paid", None]})
            for future in list(producer.submit_rows(rows, topic="orders")):
                future.result()

        Columns: `body` (binary) and `topic`, unless given as argument; optionally `tags`, `keys` (a text that separates
        them by spaces, or a list), `shardingKey`, `queueId`, `brokerName`, `flag`, `properties` (map), `delayLevel`,
        `deliverTimestamp` (milliseconds), `msgId`. A row goes to its `queueId`, or to the queue of its `shardingKey`'s
        hash; `placement` chooses for the others: round robin, the hash of their keys, or an error. Rows of one queue
        keep their order, with up to `batch_messages` and `batch_bytes` in one request; large bodies and delayed rows go
        alone.

        With an `id_seed`, ids are hashes of it and of the column `identity`, or of the row number counted from
        `first_row`: a repeated row has the same id. Raises `ValueError` for an invalid row; earlier rows are in flight
        then. Producers with interceptors, which see messages, or with `trace` cannot send rows.
        """
        if self._interceptors:
            raise errors.ConfigError(
                "submit_rows does not support interceptors or traces",
                hint="use a producer without interceptors and trace for rows",
            )
        check_types(
            first_row=(first_row, int), batch_messages=(batch_messages, int), batch_bytes=(batch_bytes, int)
        )
        self._check_open()
        self._deliver()
        rows = Rows(
            batch,
            topic=topic,
            id_seed=id_seed,
            first_row=first_row,
            properties=properties,
            compress_above=self._compress_above,
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
        """Send a message that consumers see if the block succeeds; arguments as of `send`.

        ::

            with producer.transaction("orders", b"...", keys="A-1"):
                database.commit()

        Entering the block stores the message where no consumer sees it, and raises as `send` does; leaving commits.
        An exception rolls back and propagates. `TransactionError` means that the broker did not confirm a commit. The
        broker asks a `transaction_checker` of the producer's `group` about transactions without a decision; a producer
        without a group has no transactions.
        """
        return Transaction(
            self._transactions.message(self, message, body, fields),
            partial(self._transactions.begin, self),
            partial(self._transactions.end, self),
        )

    def typed(self, topic: str, kind: type[V], *, codec: Codec | None = None) -> TypedTopic[V]:
        """Return a topic whose messages are values of one type, encoded by `codec`, `JsonCodec()` by default.

        ::

            orders = producer.typed("orders", Order)
            orders.send(Order("A-1", 4.5), keys="A-1")
        """
        from rmqpy.client.producer.typed import TypedTopic

        return TypedTopic(self, topic, chosen_codec(topic, kind, codec))

    def flush(self, timeout: float | timedelta | None = None) -> None:
        """Wait until no message is in flight or lingering. Raises `RequestTimeout`."""
        self._check_open()
        self._linger.hurry()
        if not self._drained(timeout):
            left = self._accepted.count + self._sender.in_flight
            raise errors.RequestTimeout(f"{left} messages are still in flight")

    def close(self, timeout: float | timedelta | None = 5.0) -> None:
        """Accept nothing more, wait up to `timeout` seconds for accepted messages, then close. Idempotent.

        Messages not stored by then fail with `SendError`, and requests without a reply with `ClosedError`.
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
            # Also after an interrupt. Closing the connections fails the remaining sends, and closing the queue gives
            # them up.
            self._has_ended = True
            self._leave()
            self._completions.close()
            try:
                self._join()
            finally:
                # After the callbacks, which record the last messages.
                self._close_trace()
        self._warn_of_failures()

    def _drained(self, timeout: float | timedelta | None) -> bool:
        """Wait until all accepted messages have ended; return False at the timeout."""
        limit = None if timeout is None else seconds(timeout)
        until = None if limit is None else time.monotonic() + limit
        if not self._accepted.wait(limit):
            return False
        return self._sender.flush(None if until is None else max(until - time.monotonic(), 0.0))

    def _join(self) -> None:
        """Wait for the callbacks of ended sends."""
        try:
            if self._delivery is not None and self._delivery is not threading.current_thread():
                self._delivery.join()
        finally:
            self._requests.join()

    def end_with_owner(self) -> None:
        """Leave closing to the owner, including at interpreter exit. For producers that serve another client."""
        _OPEN.discard(self)

    def _warn_of_failures(self) -> None:
        """Warn of submitted messages that were not sent and whose outcome was never read."""
        failed, first = self._sender.unasked_failures()
        if failed:
            messages = "messages were" if failed > 1 else "message was"
            text = f"{failed} submitted {messages} not sent, and their outcome was never read"
            if first is not None:
                text += f"; the first, to {first[0]}: {outcome.attempt(*first).error}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _open_send() -> OpenSend:
        return open_send

    @cached_property
    def _caller(self) -> BlockingCaller:
        return BlockingCaller(self._cluster.client)

    async def _in_turn(self, send: Callable[[], T | NotSent]) -> T | NotSent:
        # The native module blocks this thread.
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
        """Send with interceptors, and batched if the producer lingers."""
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
        wait = self._silent.wait_s
        while not (is_over := future._settle(wait)):
            if is_over is None:
                wait = self._silent.look(self._caller)
            elif pause := self._decide(future):
                time.sleep(pause)
                self._decide(future, has_paused=True)
        return future

    def _deliver(self) -> None:
        """Start the delivery thread, which retries failed sends and runs callbacks."""
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

    def _completed(self, future: SendFuture, *, has_paused: bool = False) -> float:
        """Process an announced future on the delivery thread; return like `_decide`."""
        if not future.done() and (pause := self._decide(future, has_paused=has_paused)):
            return pause
        if future.done():
            self._done_callbacks.call(future)
        return 0.0

    def _look_around(self) -> float:
        """Look at the sends in flight; return the seconds until the next look."""
        return self._silent.look(self._caller) if self._sender.in_flight else SILENT_S


@contextmanager
def open_send(config: ClientConfig, group: str) -> Iterator[Callable[[Message], SendResult]]:
    """Open a producer for another client, and yield its `send`. The caller closes it at the end."""
    with Producer(config, group=group) as producer:
        producer.end_with_owner()
        yield producer.send


#: Open producers, which are flushed at interpreter exit.
_OPEN: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for producer in list(_OPEN):
        producer.close()
