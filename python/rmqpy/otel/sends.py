"""Telemetry of a producer: a span `send TOPIC` for each message, with its context in the message's properties.

Owns nothing that outlives a send. Messages to system topics, such as message traces, have no span. Any thread.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from rmqpy.message import Message, SendResult
from rmqpy.otel import names
from rmqpy.protocol.names import is_system_topic

if TYPE_CHECKING:
    from rmqpy.otel.instruments import Instruments


class _Begun(NamedTuple):
    span: Span
    at: float


class SendTelemetry:
    """Reports one producer's sends to OpenTelemetry."""

    def __init__(self, instruments: Instruments, namespace: str) -> None:
        self._instruments = instruments
        self._common: dict[str, AttributeValue] = {
            names.SYSTEM: names.ROCKETMQ,
            names.OPERATION_NAME: names.SEND,
            names.OPERATION_TYPE: names.SEND,
        }
        self._namespace = namespace

    def begin(self, message: Message) -> tuple[Message, _Begun | None]:
        """Start a span and put its context into the message."""
        topic = message.topic
        if is_system_topic(topic):
            return message, None
        span = self._instruments.tracer.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=self._attributes(message)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        if carrier:
            message = message.replace(properties={**message.properties, **carrier})
        return message, _Begun(span, perf_counter())

    def mark_half(self, state: _Begun | None) -> None:
        """Note that this message is sent as a half message."""
        if state is not None:
            state.span.set_attribute(names.MESSAGE_TYPE, "transaction")

    def end(self, message: Message, state: _Begun | None, outcome: SendResult | BaseException | None) -> None:
        """End the span, and count."""
        if state is None:
            return
        took = perf_counter() - state.at
        span, measured = state.span, {**self._common, names.DESTINATION: message.topic}
        if isinstance(outcome, SendResult):
            span.set_attribute(names.MESSAGE_ID, outcome.message_id)
            span.set_attribute(names.PARTITION, f"{outcome.queue.broker}:{outcome.queue.queue_id}")
        elif outcome is not None:
            kind = type(outcome).__qualname__
            measured[names.ERROR_TYPE] = kind
            span.set_attribute(names.ERROR_TYPE, kind)
            span.record_exception(outcome)
            span.set_status(Status(StatusCode.ERROR, str(outcome)))
        span.end()
        self._instruments.operation_duration.record(took, measured)
        self._instruments.sent_messages.add(1, measured)

    def _attributes(self, message: Message) -> dict[str, AttributeValue]:
        found = {**self._common, names.DESTINATION: message.topic, names.BODY_SIZE: len(message.body)}
        if self._namespace:
            found[names.NAMESPACE] = self._namespace
        if message.tag is not None:
            found[names.MESSAGE_TAG] = message.tag
        if message.keys:
            found[names.MESSAGE_KEYS] = message.keys
        kind = "normal"
        if message.sharding_key is not None:
            kind = "fifo"
            found[names.MESSAGE_GROUP] = message.sharding_key
        if message.delay_level is not None:
            kind = "delay"
            found[names.DELAY_LEVEL] = message.delay_level
        if message.deliver_at is not None:
            kind = "delay"
            found[names.DELIVERY_TIMESTAMP] = round(message.deliver_at * 1_000)
        if message.deliver_after is not None:
            kind = "delay"
        found[names.MESSAGE_TYPE] = kind
        return found
