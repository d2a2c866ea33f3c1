"""Handlers of the user: safe calls, with counts.

Owns the table of handlers by topic. A handler's exception causes redelivery of its messages. Any thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, NamedTuple

from rmqpy.client.codecs.parameters import Undecodable
from rmqpy.client.consume_result import (
    DONE,
    BatchResult,
    ConsumeResult,
    HandlerResult,
    Reply,
    Retry,
    interpret,
)
from rmqpy.client.push import failures
from rmqpy.client.push.statistics import ConsumeStatistics, TopicCounts
from rmqpy.client.push.worker_pool import Worker, WorkerPool
from rmqpy.errors import RocketMQError
from rmqpy.message import ReceivedMessage

#: Takes a message, or a list of messages if `batch_size` is more than 1.
Handler = Callable[[Any], Any]
#: A handler's return value, or that of its coroutine in `AsyncPushConsumer`.
HandlerAnswer = bool | ConsumeResult | Retry | BatchResult | Reply | None
#: The type of a handler as users write it.
MessageHandler = (
    Callable[[ReceivedMessage], HandlerAnswer | Awaitable[HandlerAnswer]]
    | Callable[[list[ReceivedMessage]], HandlerAnswer | Awaitable[HandlerAnswer]]
)


def check_callable(function: object, argument: str, *, may_await: bool) -> Callable[..., Any]:
    """Return a function that a consumer can call; raise `TypeError` for another object. `may_await`: it may be a
    coroutine function."""
    if not callable(function):
        raise TypeError(f"{function!r} cannot be called: give a function of one argument, {argument}")
    called = (function, type(function).__call__)
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in called):
        raise TypeError(f"{function!r} is a generator function, whose body would never run")
    if not may_await and any(inspect.iscoroutinefunction(one) for one in called):
        raise TypeError(
            f"{function!r} is a coroutine function, which nothing would await: use AsyncPushConsumer"
        )
    return function


def check_callback(function: object, argument: str, *, may_await: bool) -> None:
    """Raise `TypeError` for an object that is not a callback with one argument. `may_await`: it may be a coroutine
    function."""
    function = check_callable(function, argument, may_await=may_await)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Some built-in functions have no signature.
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(
            f"{function!r} takes {signature}, but is called with one argument, {argument}: {error}"
        ) from None


class ConsumerStats(NamedTuple):
    """The totals of a consumer since its start: messages `consumed`, `failed` (each delivery counts) and `discarded`;
    messages `waiting`, fetched but not finished; the number of owned `queues`; and failed messages that are `lost`,
    because the group has no retry queues, or no broker accepts them."""

    consumed: int
    failed: int
    discarded: int
    waiting: int
    queues: int
    lost: int = 0


#: Sends the reply to a request, on the event loop.
SendReply = Callable[[ReceivedMessage, Reply], Coroutine[Any, Any, None]]


class Handlers:
    """The handlers of one consumer by topic."""

    def __init__(self, pool: WorkerPool[Any], batch_size: int, send_reply: SendReply) -> None:
        self.batch_size = batch_size
        self._send_reply = send_reply
        self.statistics = ConsumeStatistics()
        self._pool = pool
        self._tables = {worker: self.statistics.table() for worker in pool.workers}
        self._table: dict[str, Handler] = {}

    @property
    def argument(self) -> str:
        """The handlers' argument, as text for errors."""
        return "the message" if self.batch_size == 1 else "a list of messages"

    @property
    def topics(self) -> frozenset[str]:
        """The topics with a handler."""
        return frozenset(self._table)

    def put(self, topic: str, handler: Handler) -> None:
        """Call `handler` for messages of `topic`."""
        self._table = {**self._table, topic: handler}

    def remove(self, topic: str) -> None:
        """Forget the handler of a topic."""
        self._table = {name: handler for name, handler in self._table.items() if name != topic}

    async def handle(
        self, worker: Worker[Any], topic: str, messages: Sequence[ReceivedMessage]
    ) -> HandlerResult:
        """Call the handler of `topic`, and count the outcome. Raises only exceptions that are meant for the worker; the
        messages are not finished then."""
        handler = self._table.get(topic)
        try:
            if handler is None:
                # The topic was just removed, or its retries belong to another member.
                result = HandlerResult(messages, error="this member has no handler for the topic")
            else:
                answer = handler(messages[0] if self.batch_size == 1 else list(messages))
                result = DONE if answer is None else await self._result(answer, messages)
        except Undecodable as error:
            failures.undecodable(messages[0], error)
            result = HandlerResult(error=str(error), dead=messages)
        except BaseException as error:
            if self._pool.ends_worker(error):
                raise
            result = HandlerResult(messages, error=failures.failed(topic, messages, error))
        counts = self._tables[worker].get(topic) or self._open(worker, topic)
        counts.calls += 1
        counts.call_s += monotonic() - worker.began_at
        if result is DONE:
            counts.consumed += len(messages)
        else:
            self._count(counts, len(messages), result)
        return result

    async def try_out(self, message: ReceivedMessage) -> HandlerResult:
        """Call the handler of a topic without counting. Raises its exceptions as an `Exception`."""
        messages = (message,)
        argument = message if self.batch_size == 1 else [message]
        try:
            answer = self._table[message.topic](argument)
            return await self._result(answer, messages)
        except Exception:
            raise
        except BaseException as error:
            if self._pool.ends_worker(error):
                raise
            # An `Exception`, so that the waiter does not mistake it for its own cancellation.
            raise RuntimeError(f"the handler raised {error!r}") from error

    def cut(self, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Return the longest prefix of messages with one topic."""
        topic = messages[0].topic
        return messages[: next((at for at, one in enumerate(messages) if one.topic != topic), None)]

    async def _result(self, answer: Any, messages: Sequence[ReceivedMessage]) -> HandlerResult:
        """Return the effect of a handler's return value, after sending a reply. Raises like `interpret`."""
        settled = await self._pool.settle(answer)
        if not isinstance(settled, Reply):
            return interpret(settled, messages)
        if self.batch_size > 1:
            raise TypeError("a Reply answers one message: with a batch_size, call reply(message, body)")
        try:
            await self._pool.on_loop(self._send_reply(messages[0], settled))
        except (RocketMQError, ValueError) as error:
            # The handler succeeded, and running it again would not bring the requester back.
            failures.unanswered(messages[0], error)
        return DONE

    def _open(self, worker: Worker[Any], topic: str) -> TopicCounts:
        counts = self._tables[worker][topic] = TopicCounts()
        return counts

    def _count(self, counts: TopicCounts, count: int, result: HandlerResult) -> None:
        if result.is_discarded:
            counts.discarded += count
        else:
            failed = len(result.failed) + len(result.dead)
            counts.consumed += count - failed
            counts.failed += failed
