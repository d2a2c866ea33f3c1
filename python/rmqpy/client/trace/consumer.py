"""Message trace of a consumer: a record of each message before and after its handler, or when `poll` returns it.

The innermost interceptor of its consumer, so it times only the handler. Messages whose broker wants no traces
are not recorded. In the thread, or the task, that calls the handler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rmqpy.client.consume_result import Reply, interpret
from rmqpy.client.interceptors import ConsumerInterceptor
from rmqpy.client.trace.dispatcher import OpenSend, TraceDispatcher
from rmqpy.config.client import ClientConfig
from rmqpy.message import ReceivedMessage
from rmqpy.protocol.ids import UniqueIds
from rmqpy.protocol.traces import DEFAULT_REGION, BegunNote, ConsumeCode, EndedNote, keys_field


class ConsumerTrace(ConsumerInterceptor):
    """Records messages before and after a consumer's handlers, and their outcome."""

    def __init__(
        self, config: ClientConfig, trace: bool | str, group: str, timeout_s: float, open_send: OpenSend
    ) -> None:
        """`timeout_s`: a handler that runs longer counts as timed out."""
        self.dispatcher = TraceDispatcher(config, trace, group, "CONSUME", open_send)
        self._group = group
        self._timeout_s = timeout_s
        self._ids = UniqueIds()
        #: Handler calls in progress by message identity: the fields shared by their records, and the start time.
        self._calls: dict[int, tuple[str, float]] = {}

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        traced = self._traced(messages)
        if not traced:
            return
        request, at = self._ids.next(), time.time()
        self._calls[id(messages)] = request, at
        for message, region in traced:
            note = BegunNote(
                at_ms=round(at * 1_000),
                region=region,
                group=self._group,
                request=request,
                message_id=message.message_id,
                retries=message.delivery_attempt - 1,
                keys=keys_field(message.keys),
            )
            self.dispatcher.put(note.text(), message.message_id, message.keys)

    def after_consume(
        self, messages: Sequence[ReceivedMessage], result: Any, error: BaseException | None
    ) -> None:
        call = self._calls.pop(id(messages), None)
        if call is None:
            return
        request, began = call
        traced, now = self._traced(messages), time.time()
        codes = self._codes(messages, result, error, now - began)
        for message, _ in traced:
            note = EndedNote(
                request=request,
                message_id=message.message_id,
                took_ms=round((now - began) * 1_000 / len(traced)),
                keys=keys_field(message.keys),
                code=codes(message),
                at_ms=round(now * 1_000),
                group=self._group,
            )
            self.dispatcher.put(note.text(), message.message_id, message.keys)

    def received(self, messages: Sequence[ReceivedMessage], began: float) -> None:
        """Record messages that a poll returns. Their outcome is unknown, so they count as consumed, as in Java's
        clients."""
        self.before_consume(messages)
        self.after_consume(messages, None, None)

    def _traced(self, messages: Sequence[ReceivedMessage]) -> list[tuple[ReceivedMessage, str]]:
        """Return the messages to record with their regions: a broker marks in each message whether it wants traces."""
        found = []
        for message in messages:
            properties = message.properties
            if properties.get("TRACE_ON") != "false" and self.dispatcher.is_traced(message.topic):
                found.append((message, properties.get("MSG_REGION") or DEFAULT_REGION))
        return found

    def _codes(
        self, messages: Sequence[ReceivedMessage], result: Any, error: BaseException | None, seconds: float
    ) -> Callable[[ReceivedMessage], ConsumeCode]:
        if error is not None:
            return lambda _: ConsumeCode.EXCEPTION
        if seconds > self._timeout_s:
            return lambda _: ConsumeCode.TIMEOUT
        if isinstance(result, Reply):
            return lambda _: ConsumeCode.SUCCESS
        try:
            failed = interpret(result, messages).failed
        except (TypeError, ValueError):
            return lambda _: ConsumeCode.FAILED
        return lambda message: ConsumeCode.FAILED if message in failed else ConsumeCode.SUCCESS
