"""Message arguments: turn what users pass to a producer into a message and a queue. Pure; any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqpy._native import SendBatch
from rmqpy.client.routes import Route
from rmqpy.message import Body, Message, MessageFields, MessageQueue

if TYPE_CHECKING:
    from rmqpy.client.codecs.codec import Codec

#: Address, broker name, queue id, and whether retries must stay in that queue.
Chosen = tuple[str, str, int, bool]


def complete(message: Message | str, body: Body | None, fields: MessageFields) -> tuple[Message, None]:
    """Build a message from a topic, a body and fields."""
    if not isinstance(message, Message | str):
        raise TypeError(f"message must be a Message or a topic, not {type(message).__name__}")
    if isinstance(message, Message):
        raise TypeError("a Message takes no further arguments: use message.replace(...) to change it")
    if body is None:
        raise TypeError("a topic needs a body: send(topic, body) or send(Message(...))")
    if unknown := fields.keys() - MessageFields.__annotations__.keys():
        # Imported late: only a mistake needs it.
        from rmqpy.config.keys import nearest

        name = min(unknown)
        meant = nearest(name, MessageFields.__annotations__)
        raise TypeError(f"a message has no field {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
    return Message(message, body, **fields), None


def chosen(route: Route, queue: MessageQueue, *, is_pinned: bool = True) -> Chosen:
    return route.sender(route.home(queue)), queue.broker, queue.queue_id, is_pinned


def chosen_codec(topic: str, kind: object, codec: Codec | None) -> Codec:
    """Check the arguments of a typed topic, and return its codec. Raises `TypeError` for a type that the codec does not
    support."""
    # Few producers have one.
    from rmqpy.client.codecs.codec import Codec
    from rmqpy.client.codecs.json import JsonCodec
    from rmqpy.config.arguments import check_types

    check_types(topic=(topic, str), codec=(codec, Codec | None))
    codec = JsonCodec() if codec is None else codec
    codec.decoder(kind)
    return codec


def topic_of(message: Message | str) -> str:
    return message if isinstance(message, str) else message.topic


def row_place(batch: SendBatch, route: Route) -> Chosen | None:
    """Return the queue of rows that share a request, or `None` for the rotation."""
    if batch.queue_index is not None:
        return chosen(route, route.writable[batch.queue_index])
    broker, queue_id = batch.broker, batch.queue_id
    if queue_id is None:
        return None
    for queue in route.writable:
        if queue.queue_id == queue_id and broker in (None, queue.broker):
            return chosen(route, queue)
    raise ValueError(f"topic {route.topic} has no queue {queue_id}" + (f" on {broker}" if broker else ""))
