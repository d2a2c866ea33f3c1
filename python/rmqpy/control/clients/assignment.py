"""Assignment: the queues of each member of a group that lets the broker divide them. Pure, for any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rmqpy.message import MessageQueue
from rmqpy.protocol.allocation import averagely, averagely_by_circle

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

#: The strategies that Apache's broker knows, by the names of its clients.
STRATEGIES: Final[Mapping[str, Allocate]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
}
#: The queue id that stands for any queue of a broker.
ANY_QUEUE: Final = -1


def popped_queues(
    allocate: Allocate, me: str, queues: Sequence[MessageQueue], members: Sequence[str], shared_with: int
) -> list[MessageQueue]:
    """The queues that a member pops: its own and those of the next `shared_with` members. Where that is all members,
    or 0 or less, any queue of each broker.

    >>> queues = [MessageQueue("t", "b", number) for number in range(4)]
    >>> [queue.queue_id for queue in popped_queues(averagely, "x", queues, "wxyz", 1)]
    [1, 2]
    >>> [queue.queue_id for queue in popped_queues(averagely, "x", queues, "wxyz", 3)]
    [-1]
    """
    if shared_with <= 0 or shared_with >= len(members) - 1:
        return sorted({queue._replace(queue_id=ANY_QUEUE) for queue in queues})
    if me not in members:
        return []
    index = members.index(me)
    if len(members) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    sharers = (members[(index + step) % len(members)] for step in range(shared_with + 1))
    return sorted({queue for member in sharers for queue in allocate(member, queues, members)})
