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
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Literal, Self, TypeVar

from rmqpy import errors
from rmqpy._native import Completions, NotSent, Rows, SendBatch, SendFuture
from rmqpy.client.producer_base import CLOSE_GRACE_S, Chosen, ProducerBase, chosen, complete
from rmqpy.client.routes import Route
from rmqpy.config.client import seconds
from rmqpy.message import Body, Message, MessageQueue, SendResult
from rmqpy.remoting.client import BURST_COUNT_MAX, BlockingCaller, blocking, run

T = TypeVar("T")

log = logging.getLogger(__name__)

Callback = Callable[[SendResult | errors.RocketMQError], None]


class Producer(ProducerBase):
    """Sends messages. Thread-safe; make one and keep it.

    ::

        with rmqpy.Producer("127.0.0.1:9876") as producer:
            producer.send("orders", b"...", tag="paid", keys="A-1")

    A send ends within its timeout: stored, or with `SendError`. After a failed attempt it is tried on other brokers,
    up to `retries` times; a broker that stored a message and could not say so has it twice then. Sends go on while
    every name server is down, to the brokers known so far.
    """

    _IS_BLOCKING = True

    def _begin(self) -> None:
        self._callbacks: dict[int, Callback] = {}
        self._next_token = 0
        self._lock = threading.Lock()
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
        **fields: Any,
    ) -> SendResult:
        """Send and wait for the broker. `send(Message(...))`, or `send(topic, body, tag=..., keys=...)`.

        Equal sharding keys go to one queue. Raises `SendError` with every attempt listed, `RouteError` when there is
        nowhere to send to, and `ValueError` for what no broker takes.
        """
        if fields:
            message, body = complete(message, body, fields)
        sent = None
        if queue is None and timeout is None and self._selector is None and not self.is_closed:
            # One call, where nothing is out of the ordinary.
            sent = self._sender.send(message, body, announce="never")
        if not isinstance(sent, SendFuture):
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
        **fields: Any,
    ) -> SendFuture:
        """Start sending and return at once. `future.result()` waits.

        Blocks, or raises `BufferFull`, only while the in-flight budget is used up. `callback` gets the result or
        the error, on one thread all callbacks share.
        """
        if self._delivery is None:
            self._deliver()
        if fields:
            message, body = complete(message, body, fields)
        if callback is None:
            sent = None
            if queue is None and timeout is None and self._selector is None and not self.is_closed:
                sent = self._sender.send(message, body)
            if isinstance(sent, SendFuture):
                return sent
            return run(self._send(message, body, queue, timeout, announce="failures", refused=sent))
        with self._lock:
            self._next_token += 1
            token = self._next_token
        self._callbacks[token] = callback
        try:
            return run(self._send(message, body, queue, timeout, announce="always", token=token))
        except BaseException:
            del self._callbacks[token]
            raise

    send_oneway = blocking(ProducerBase._send_oneway)
    send_batch = blocking(ProducerBase._send_batch)
    queues = blocking(ProducerBase._queues)

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

        Columns: `body` (binary) and `topic`, unless it is given; where they are there `tags`, `keys` (separated by
        spaces), `shardingKey`, `queueId`, `brokerName`, `flag`, `properties` (map), `delayLevel`, `deliverTimestamp`
        (milliseconds), `msgId`. A row with a `queueId` goes there, one with a `shardingKey` where its hash points;
        `placement` says where the others go: anywhere in turn, by the hash of their keys, or nowhere. Rows of one
        queue go in order, up to `batch_messages` and `batch_bytes` in one request; large bodies and delayed rows go
        alone.

        With an `id_seed`, ids are a hash of it and of the column `identity`, else of the row's number counted from
        `first_row`: what is sent again has the same ids. Raises `ValueError` for a row that no broker takes; those
        before it are on their way.
        """
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
                to = _place(send_batch, route)
                yield run(
                    self._start(name, partial(self._sender.send_rows, rows, send_batch, topic=name, to=to))
                )

    def flush(self, timeout: float | timedelta | None = None) -> None:
        """Wait until nothing is on its way. Raises `RequestTimeout`."""
        self._check_open()
        if not self._sender.flush(None if timeout is None else seconds(timeout)):
            raise errors.RequestTimeout(f"{self._sender.in_flight} messages are still on their way")

    def close(self, timeout: float | timedelta | None = 5.0) -> None:
        """Let what is on its way finish, for at most `timeout` seconds, then end. Idempotent.

        What was not stored by then fails with `SendError`.
        """
        if self.is_closed:
            return
        _OPEN.discard(self)
        if not self._is_forked:
            self._sender.flush(None if timeout is None else seconds(timeout))
        self.is_closed = True
        if self._is_forked:
            return
        # Closing the connections fails what is left; closing the queue gives it up.
        self._cluster.release(grace_s=CLOSE_GRACE_S)
        self._completions.close()
        if self._delivery is not None and self._delivery is not threading.current_thread():
            self._delivery.join()

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

    def _settled(self, future: SendFuture) -> SendFuture:
        while not future.settle():
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
                        target=_deliver, args=(weakref.ref(self), self._completions), daemon=True
                    )
                    thread.name = "rmqpy-delivery"
                    thread.start()
                    self._delivery = thread

    def _completed(self, token: int, future: SendFuture, *, has_paused: bool = False) -> float:
        """An announced future, on the delivery thread; returns what `_decide` does."""
        if not future.done() and (pause := self._decide(future, has_paused=has_paused)):
            return pause
        callback = self._callbacks.pop(token, None) if token and future.done() else None
        if callback is not None:
            try:
                callback(_outcome(future))
            except Exception:
                log.exception("the callback of a send to %s failed", future.topic)
        return 0.0


def _deliver(owner: weakref.ref[Producer], completions: Completions) -> None:
    """The delivery thread: ends when the producer is closed, or gone."""
    pausing: list[tuple[float, int, int, SendFuture]] = []
    order = count()
    while True:
        completions.wait(max(0.0, pausing[0][0] - time.monotonic()) if pausing else None)
        completed = completions.take(BURST_COUNT_MAX)
        if not completed and completions.is_closed():
            break
        producer = owner()
        now = time.monotonic()
        while pausing and (producer is None or pausing[0][0] <= now):
            _, _, token, future = heappop(pausing)
            if producer is None:
                future.give_up()
            else:
                producer._completed(token, future, has_paused=True)
        for token, future in completed:
            if producer is None:
                future.give_up()
            elif pause := producer._completed(token, future):
                heappush(pausing, (now + pause, next(order), token, future))
        del producer
    for _, _, _, future in pausing:
        future.give_up()


def _outcome(future: SendFuture) -> SendResult | errors.RocketMQError:
    try:
        return future.result()
    except errors.RocketMQError as error:
        return error


def _place(batch: SendBatch, route: Route) -> Chosen | None:
    """The queue of rows that travel together; `None` leaves it to the rotation."""
    index, broker, queue_id = batch.place
    if index is not None:
        return chosen(route, route.writable[index])
    if queue_id is None:
        return None
    for queue in route.writable:
        if queue.queue_id == queue_id and broker in (None, queue.broker):
            return chosen(route, queue)
    raise ValueError(f"topic {route.topic} has no queue {queue_id}" + (f" on {broker}" if broker else ""))


#: Producers not closed yet: leaving the program flushes them.
_OPEN: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for producer in list(_OPEN):
        producer.close()
