"""Traces: what producers and consumers have recorded about a message."""

from typing import Final, NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.admin.messages import Messages
from rmqpy.errors import MessageNotFound, TopicNotFound
from rmqpy.protocol.names import TRACE_TOPIC
from rmqpy.protocol.traces import joined, notes

#: Bodies of notes that one broker is asked for: each has those of one client, of ten messages or so.
_BODIES_MAX: Final = 64


class Step(NamedTuple):
    """One step of a message: sent, consumed, committed, recalled."""

    #: send, consume, end transaction, recall.
    what: str
    #: When it began, in ms since the epoch; None where the client does not report it.
    at_ms: int | None
    group: str | None
    #: `ip:port` of the client.
    client: str
    topic: str | None
    #: Address of the broker; of sends.
    broker: str | None
    #: Which delivery, the first one being 1; of consumption.
    attempt: int | None
    took_ms: int | None
    #: success, failed, timeout, exception, no result; committed, rolled back, unknown. None while it has not ended.
    outcome: str | None


class Traces(Part):
    """The traces of one cluster."""

    async def of(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> list[Step]:
        """Steps of the message that its producer gave this id, in order of time.

        Clients trace where it is enabled, and write some seconds later. Raises `MessageNotFound` where no client has
        traced the message, `TopicNotFound` for a cluster without a topic of traces.
        """
        try:
            bodies = await Messages(self._cluster).by_key(trace_topic, message_id, count=_BODIES_MAX)
        except TopicNotFound as error:
            hint = (
                "the first trace of a client makes it where autoCreateTopicEnable=true; a broker with "
                "traceTopicEnable=true has it"
            )
            raise TopicNotFound(
                f"there is no topic of traces {trace_topic!r}", code=error.code, topic=trace_topic, hint=hint
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
                f"there is no trace of {message_id!r}",
                topic=trace_topic,
                hint="clients trace where it is enabled, under the producer's id, and write some seconds later",
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
