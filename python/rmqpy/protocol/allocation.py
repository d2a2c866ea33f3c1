"""Allocation: the strategies that clients and brokers both apply to divide queues among the members of a group.

Pure, for any thread.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def averagely(me: str, queues: Sequence[T], members: Sequence[str]) -> list[T]:
    """Cut the queues into near-equal runs, one per member, longer runs first.

    >>> [averagely(me, range(8), "xyz") for me in "xyz"]
    [[0, 1, 2], [3, 4, 5], [6, 7]]
    """
    if me not in members:
        return []
    index = members.index(me)
    size, longer = divmod(len(queues), len(members))
    begin = index * size + min(index, longer)
    return list(queues[begin : begin + size + (index < longer)])


def averagely_by_circle(me: str, queues: Sequence[T], members: Sequence[str]) -> list[T]:
    """Deal the queues out one by one, which spreads the queues of each broker over the members.

    >>> [averagely_by_circle(me, range(8), "xyz") for me in "xyz"]
    [[0, 3, 6], [1, 4, 7], [2, 5]]
    """
    return list(queues[members.index(me) :: len(members)]) if me in members else []
