"""Telemetry of a push consumer: a span `process TOPIC` around each call of a handler.

The span of a single message continues its producer's trace, so sends of the handler belong to it, too; that of a
batch starts a trace. Both link to the spans of the sends. Owns the calls in progress. Runs in the thread or task that
calls the handler. the task, that calls the handler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Token
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from rmqpy.client.consume_result import Reply, interpret
from rmqpy.client.interceptors import ConsumerInterceptor
from rmqpy.message import ReceivedMessage
from rmqpy.otel import names

if TYPE_CHECKING:
    from rmqpy.otel.instruments import Instruments


class _Call(NamedTuple):
    span: Span
    token: Token[Context]
    at: float


class CallTelemetry(ConsumerInterceptor):
    """Reports one consumer's handler calls to OpenTelemetry."""

    def __init__(self, instruments: Instruments, namespace: str, group: str, *, is_broadcast: bool) -> None:
        self._instruments = instruments
        self._measured: dict[str, AttributeValue] = {
            names.SYSTEM: names.ROCKETMQ,
            names.OPERATION_NAME: names.PROCESS,
            names.OPERATION_TYPE: names.PROCESS,
            names.CONSUMER_GROUP: group,
        }
        self._common = {
            **self._measured,
            names.CONSUMPTION_MODEL: "broadcasting" if is_broadcast else "clustering",
        }
        if namespace:
            self._common[names.NAMESPACE] = namespace
        #: By the identity of the handler's argument.
        self._calls: dict[int, _Call] = {}

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        sent = [propagate.extract(message.properties, Context()) for message in messages]
        first = messages[0]
        attributes = {**self._common, names.DESTINATION: first.topic}
        if len(messages) == 1:
            parent = sent[0]
            attributes |= message_attributes(first)
        else:
            parent = Context()
            attributes[names.BATCH_COUNT] = len(messages)
        span = self._instruments.tracer.start_span(
            f"process {first.topic}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links_to(sent),
        )
        token = context.attach(trace.set_span_in_context(span, parent))
        self._calls[id(messages)] = _Call(span, token, perf_counter())

    def after_consume(
        self, messages: Sequence[ReceivedMessage], result: Any, error: BaseException | None
    ) -> None:
        call = self._calls.pop(id(messages), None)
        if call is None:
            return
        context.detach(call.token)
        measured = {**self._measured, names.DESTINATION: messages[0].topic}
        failure = _failure(messages, result, error)
        if failure is not None:
            measured[names.ERROR_TYPE] = failure
            call.span.set_attribute(names.ERROR_TYPE, failure)
            call.span.set_status(Status(StatusCode.ERROR, None if error is None else str(error)))
        if error is not None:
            call.span.record_exception(error)
        call.span.end()
        self._instruments.process_duration.record(perf_counter() - call.at, measured)
        self._instruments.consumed_messages.add(len(messages), measured)


def message_attributes(message: ReceivedMessage) -> Mapping[str, AttributeValue]:
    """Attributes of a span about one message."""
    found: dict[str, AttributeValue] = {
        names.MESSAGE_ID: message.message_id,
        names.BODY_SIZE: len(message.body),
        names.PARTITION: f"{message.queue.broker}:{message.queue.queue_id}",
    }
    if message.tag is not None:
        found[names.MESSAGE_TAG] = message.tag
    if message.keys:
        found[names.MESSAGE_KEYS] = message.keys
    if message.sharding_key is not None:
        found[names.MESSAGE_GROUP] = message.sharding_key
    return found


def links_to(sent: Sequence[Context]) -> list[Link]:
    """Links to the spans of the sends, from the contexts in messages."""
    spans = (trace.get_current_span(each).get_span_context() for each in sent)
    return [Link(span) for span in spans if span.is_valid]


def _failure(messages: Sequence[ReceivedMessage], result: Any, error: BaseException | None) -> str | None:
    """The kind of an error, in one word."""
    if error is not None:
        return type(error).__qualname__
    if isinstance(result, Reply):
        return None
    try:
        return "redelivery" if interpret(result, messages).failed else None
    except (TypeError, ValueError) as wrong:
        return type(wrong).__qualname__
