"""Telemetry of a pull consumer: a span `receive TOPIC` for each topic of the messages returned by a poll.

It lasts from the start of the poll to its return, is a child of the caller's span, and links to the spans of the
sends; later processing by the caller is not visible here. Empty polls are not reported. Owns nothing; runs in the
thread or task that polls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from rmqpy.message import ReceivedMessage
from rmqpy.otel import names
from rmqpy.otel.calls import links_to, message_attributes

if TYPE_CHECKING:
    from rmqpy.otel.instruments import Instruments


class ReceiveTelemetry:
    """Reports one consumer's polls to OpenTelemetry."""

    def __init__(self, instruments: Instruments, namespace: str, group: str) -> None:
        self._instruments = instruments
        self._measured: dict[str, AttributeValue] = {
            names.SYSTEM: names.ROCKETMQ,
            names.OPERATION_NAME: names.RECEIVE,
            names.OPERATION_TYPE: names.RECEIVE,
            names.CONSUMER_GROUP: group,
        }
        self._common = {**self._measured, names.CONSUMPTION_MODEL: "clustering"}
        if namespace:
            self._common[names.NAMESPACE] = namespace

    def received(self, messages: Sequence[ReceivedMessage], began: float) -> None:
        """Report a finished poll that returns these messages."""
        took = max(0.0, time.time() - began)
        by_topic: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        for topic, received in by_topic.items():
            attributes = {**self._common, names.DESTINATION: topic, names.BATCH_COUNT: len(received)}
            if len(received) == 1:
                attributes |= message_attributes(received[0])
            span = self._instruments.tracer.start_span(
                f"receive {topic}",
                kind=SpanKind.CLIENT,
                attributes=attributes,
                links=links_to([propagate.extract(each.properties, Context()) for each in received]),
                start_time=round(began * 1e9),
            )
            span.end()
            measured = {**self._measured, names.DESTINATION: topic}
            self._instruments.operation_duration.record(took, measured)
            self._instruments.consumed_messages.add(len(received), measured)
