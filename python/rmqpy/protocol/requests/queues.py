"""One queue as bodies name it."""

from rmqpy import message
from rmqpy.protocol.declare import Resource, record


@record
class MessageQueue:
    """A queue of a topic on one broker; a key of many maps, there a bare object."""

    broker_name: str
    queue_id: int
    topic: Resource

    @property
    def queue(self) -> message.MessageQueue:
        """The same as users have it."""
        return message.MessageQueue(self.topic, self.broker_name, self.queue_id)


def named(queue: message.MessageQueue) -> MessageQueue:
    """A user's queue as bodies name it."""
    return MessageQueue(broker_name=queue.broker, queue_id=queue.queue_id, topic=queue.topic)
