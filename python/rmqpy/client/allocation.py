"""Allocation strategies: the queues of each member of a group, with the results of their Java namesakes.

Every member computes the shares of all from the same view: the sorted queues of a topic and the sorted ids of the
members. So no two members of an agreeing group own one queue, whatever language each is written in. While views
differ, for a moment after every change, a queue may have two owners or none.

A member that is not among `members`, or a topic without queues, gives an empty share. Pure, for any thread.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import md5
from typing import Final, TypeVar

from rmqpy._native import Namespace
from rmqpy.message import MessageQueue

T = TypeVar("T")

#: (own id, sorted queues of one topic, sorted ids of all members) → the queues of this member.
Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

#: Places of one member on the ring of `consistent_hash`, as in Java.
VIRTUAL_NODES: Final = 10


def averagely(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Cut the queues into near-equal runs, one per member, longer runs first.

    >>> queues = [MessageQueue("t", "b", number) for number in range(8)]
    >>> [[queue.queue_id for queue in averagely(me, queues, "xyz")] for me in "xyz"]
    [[0, 1, 2], [3, 4, 5], [6, 7]]
    """
    if me not in members:
        return []
    index = members.index(me)
    size, longer = divmod(len(queues), len(members))
    begin = index * size + min(index, longer)
    return list(queues[begin : begin + size + (index < longer)])


def averagely_by_circle(
    me: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Deal the queues out one by one, like cards: it spreads the queues of one broker over the members."""
    return list(queues[members.index(me) :: len(members)]) if me in members else []


def consistent_hash(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """The next member on a ring of hashes: few queues move when a member comes or goes, but shares are uneven.

    Not for groups with Go members, whose ring is another one.
    """
    if me not in members:
        return []
    ring = dict(
        sorted((_ring(f"{member}-{node}"), member) for member in members for node in range(VIRTUAL_NODES))
    )
    places = list(ring)
    owners = list(ring.values())
    return [
        queue for queue in queues if owners[bisect_left(places, _ring(_java_text(queue))) % len(owners)] == me
    ]


def by_configuration(mine: Iterable[MessageQueue]) -> Allocate:
    """Always these queues, whatever other members there are."""
    fixed = tuple(mine)

    def allocate(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        present = set(queues)
        return [queue for queue in fixed if queue in present]

    return allocate


def by_machine_room(rooms: Collection[str]) -> Allocate:
    """Share the queues of brokers in these rooms, named `room@broker`; the others are not read."""
    ours = frozenset(rooms)

    def allocate(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        near = [queue for queue in queues if _room_in_name(queue.broker) in ours]
        index = members.index(me)
        size, rest = divmod(len(near), len(members))
        # Runs of equal length, and what is left over is dealt out behind them: not the cut of `averagely`.
        return near[index * size : (index + 1) * size] + (
            [near[size * len(members) + index]] if index < rest else []
        )

    return allocate


def machine_room_nearby(
    inner: Allocate, room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str]
) -> Allocate:
    """Each room's members share the queues of their room by `inner`; rooms without members are shared by all."""

    def allocate(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        queues_in = _grouped(queues, lambda queue: room_of_broker(queue.broker))
        members_in = _grouped(members, room_of_member)
        home = room_of_member(me)
        share = inner(me, queues_in.pop(home, []), members_in[home])
        for room in sorted(queues_in.keys() - members_in.keys()):
            share += inner(me, queues_in[room], members)
        return share

    return allocate


#: The strategies that need no settings, by the names users give.
STRATEGIES: Final[Mapping[str, Allocate]] = {
    "average": averagely,
    "circle": averagely_by_circle,
    "consistent-hash": consistent_hash,
}


def strategy(named: str | Allocate) -> Allocate:
    """The strategy of this name, or the given one. Raises `ValueError` for a name that is none."""
    if not isinstance(named, str):
        return named
    found = STRATEGIES.get(named)
    if found is None:
        raise ValueError(f"{named!r} is no allocation strategy: use {', '.join(STRATEGIES)}, or a function")
    return found


def on_wire(allocate: Allocate, namespace: Namespace | None) -> Allocate:
    """The strategy for queues of a namespace: `consistent_hash` hashes names of topics, which have to be those of the
    members in other languages, and that are the ones brokers know."""
    if namespace is None or allocate is not consistent_hash:
        return allocate

    def allocate_on_wire(
        me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        plain = {queue._replace(topic=namespace.wrap(queue.topic)): queue for queue in queues}
        return [plain[queue] for queue in allocate(me, list(plain), members)]

    return allocate_on_wire


def _room_in_name(broker: str) -> str | None:
    # As Java splits: empty parts at the end do not count.
    parts = broker.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _grouped(things: Iterable[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = defaultdict(list)
    for thing in things:
        groups[room_of(thing)].append(thing)
    return groups


def _ring(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4])


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker}, queueId={queue.queue_id}]"
