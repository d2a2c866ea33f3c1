"""One queue as bodies name it."""

from rmqpy.protocol.declare import record


@record
class MessageQueue:
    """A queue of a topic on one broker; a key of many maps, there a bare object."""

    broker_name: str
    queue_id: int
    topic: str
