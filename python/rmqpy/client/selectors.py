"""Queue selectors: the choice among a topic's queues for a message.

A selector is any callable that takes the message and the topic's writable queues, sorted and never empty, and
returns one of them. It is called in the sender's thread, also again for each retry with the queues that are left,
so it must be quick and safe for several threads.
"""

import random
from collections.abc import Callable, Sequence
from itertools import count

from rmqpy.message import Message, MessageQueue

QueueSelector = Callable[[Message, Sequence[MessageQueue]], MessageQueue]


def round_robin() -> QueueSelector:
    """Each queue in turn, topic by topic, from a random start.

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
            # `setdefault`: of two threads that meet a new topic, one counter wins.
            turn = turns.setdefault(message.topic, count(random.randrange(1 << 16)))
        return queues[next(turn) % len(queues)]

    return select


def at_random(message: Message, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Any queue."""
    return random.choice(queues)


def by_sharding_key(message: Message, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue the hash of the sharding key points at: the one Java's `SelectMessageQueueByHash` takes.

    Stable while the number of queues is; producers of messages that carry a key use it whatever their selector.

    >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(4)]
    >>> by_sharding_key(Message("orders", b"x", sharding_key="customer-7"), queues).queue_id
    0
    """
    if message.sharding_hash is None:
        raise ValueError("the message has no sharding_key")
    return queues[abs(message.sharding_hash) % len(queues)]
