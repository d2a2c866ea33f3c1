"""Queue selectors: the choice among a topic's queues for a message.

A selector is any callable that takes the message and the topic's writable queues, sorted and never empty, and
returns one of them. It is called in the sender's thread, and again for each retry with the remaining queues, so it must
be fast and thread-safe.
"""

import random
from collections.abc import Callable, Sequence
from itertools import count

from rmqpy.message import Message, MessageQueue

#: The choice of a queue for a message, among the writable ones of its topic; called again for each retry.
QueueSelector = Callable[[Message, Sequence[MessageQueue]], MessageQueue]


def round_robin() -> QueueSelector:
    """Use the queues of each topic in turn, from a random start.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
    >>> turn = round_robin()
    >>> chosen = {turn(Message("orders", b"x"), queues) for _ in queues}
    >>> chosen == set(queues)
    True
    """
    turns: dict[str, count[int]] = {}

    def select(message: Message, queues: Sequence[MessageQueue]) -> MessageQueue:
        turn = turns.get(message.topic)
        if turn is None:
            # With `setdefault` concurrent first sends share one counter.
            turn = turns.setdefault(message.topic, count(random.randrange(1 << 16)))
        return queues[next(turn) % len(queues)]

    return select


def at_random(message: Message, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Use a random queue."""
    return random.choice(queues)


def by_sharding_key(message: Message, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Use the queue of the sharding key's hash, like Java's `SelectMessageQueueByHash`.

    Stable while the number of queues is. Messages with a key use it whatever the producer's selector.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
    >>> by_sharding_key(Message("orders", b"x", sharding_key="customer-7"), queues).queue_id
    0
    """
    if message.sharding_hash is None:
        raise ValueError("the message has no sharding_key")
    return queues[abs(message.sharding_hash) % len(queues)]
