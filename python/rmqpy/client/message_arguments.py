"""Message arguments: what users give a producer to send, made a message, and the queue it goes to. Pure; any thread."""

from __future__ import annotations

from rmqpy._native import SendBatch
from rmqpy.client.routes import Route
from rmqpy.message import Body, Message, MessageFields, MessageQueue

#: Address, name of the broker, queue id, and whether only that queue will do.
Chosen = tuple[str, str, int, bool]


def complete(message: Message | str, body: Body | None, fields: MessageFields) -> tuple[Message, None]:
    """The message that a topic, a body and fields stand for."""
    if not isinstance(message, str):
        raise TypeError("a Message is complete: use message.replace(...) to change it")
    if body is None:
        raise TypeError("a topic needs a body: send(topic, body) or send(Message(...))")
    if unknown := fields.keys() - MessageFields.__annotations__.keys():
        # Here: only a mistake needs it, and every start would pay for it.
        from rmqpy.config.keys import nearest

        name = min(unknown)
        meant = nearest(name, MessageFields.__annotations__)
        raise TypeError(f"a message has no field {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))
    return Message(message, body, **fields), None


def chosen(route: Route, queue: MessageQueue, *, is_pinned: bool = True) -> Chosen:
    return route.sender(queue.broker), queue.broker, queue.queue_id, is_pinned


def topic_of(message: Message | str) -> str:
    return message if isinstance(message, str) else message.topic


def row_place(batch: SendBatch, route: Route) -> Chosen | None:
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
