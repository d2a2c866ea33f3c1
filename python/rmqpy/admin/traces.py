"""Traces of messages, recorded by producers and consumers."""

from typing import Final, NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.admin.messages import Messages
from rmqpy.errors import MessageNotFound, TopicNotFound
from rmqpy.protocol.names import TRACE_TOPIC
from rmqpy.protocol.traces import joined, notes

#: The most record bodies read from one broker; each has those of one client, of about ten messages.
_BODIES_MAX: Final = 64


class Step(NamedTuple):
    """One step of a message: sent, consumed, committed, recalled."""

    #: send, consume, end transaction, recall.
    what: str
    #: Its start in ms since the epoch; None if the client does not report it.
    at_ms: int | None
    group: str | None
    #: `ip:port` of the client.
    client: str
    topic: str | None
    #: The address of the broker, for sends.
    broker: str | None
    #: The number of the delivery, from 1, for consumption.
    attempt: int | None
    took_ms: int | None
    #: success, failed, timeout, exception, no result; committed, rolled back, unknown. None until it has ended.
    outcome: str | None


class Traces(Part):
    """The traces of one cluster."""

    async def of(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> list[Step]:
        """Return the steps of the message with this producer's id, in order of time.

        Only clients with tracing record them, some seconds later. Raises `MessageNotFound` without traces of the
        message, `TopicNotFound` without a trace topic.
        """
        try:
            bodies = await Messages(self._cluster).by_key(trace_topic, message_id, count=_BODIES_MAX)
        except TopicNotFound as error:
            hint = (
                "with autoCreateTopicEnable=true the first trace creates it; otherwise set "
                "traceTopicEnable=true"
            )
            raise TopicNotFound(
                f"the trace topic {trace_topic!r} does not exist",
                code=error.code,
                topic=trace_topic,
                hint=hint,
            ) from None
        hosts = {}
        found = []
        for body in bodies:
            for note in notes(body.body.decode("utf-8", "replace")):
                if note.message_id == message_id:
                    found.append(note)
                    hosts[note.what, note.request, note.group] = body.born_host
        if not found:
            raise MessageNotFound(
                f"no trace of {message_id!r} was found",
                topic=trace_topic,
                hint="only clients with tracing record them, by the producer's id, some seconds later",
            )
        return [
            Step(
                note.what,
                note.at_ms,
                note.group,
                hosts.get((note.what, note.request, note.group))
                or hosts["consumed", note.request, note.group],
                note.topic,
                note.broker,
                note.attempt,
                note.took_ms,
                note.outcome,
            )
            for note in joined(found)
        ]
