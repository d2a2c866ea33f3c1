"""Allocation strategies: the queues of each member of a group, as their Java namesakes compute them.

Every member computes all shares from the same view: the sorted queues of a topic and the sorted ids of the members.
Members that agree therefore never share a queue, whatever language they are written in. While views differ, briefly
after each change, a queue may have two owners or none.

A member missing from `members`, or a topic without queues, gets an empty share. Pure, for any thread.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import md5
from typing import Final, TypeVar

from rmqpy._native import Namespace
from rmqpy.message import MessageQueue
from rmqpy.protocol.allocation import averagely, averagely_by_circle

T = TypeVar("T")

#: (own id, sorted queues of one topic, sorted ids of all members) → the queues of this member.
Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

#: Places of one member on the ring of `consistent_hash`, as in Java.
VIRTUAL_NODES: Final = 10


def consistent_hash(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Assign each queue to the next member on a hash ring: few queues move when a member joins or leaves, but shares
    are uneven.

    Not for groups with Go members, which use a different ring.
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
    """Assign these queues to this member, whatever the other members are."""
    fixed = tuple(mine)

    def allocate(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        present = set(queues)
        return [queue for queue in fixed if queue in present]

    return allocate


def by_machine_room(rooms: Collection[str]) -> Allocate:
    """Share the queues of brokers in these rooms, named `room@broker`. The other queues are not read."""
    ours = frozenset(rooms)

    def allocate(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if me not in members:
            return []
        near = [queue for queue in queues if _room_in_name(queue.broker) in ours]
        index = members.index(me)
        size, rest = divmod(len(near), len(members))
        # Equal runs, with the remaining queues dealt out behind them; `averagely` cuts differently.
        return near[index * size : (index + 1) * size] + (
            [near[size * len(members) + index]] if index < rest else []
        )

    return allocate


def machine_room_nearby(
    inner: Allocate, room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str]
) -> Allocate:
    """Share the queues of each room among its members by `inner`; all members share rooms without members."""

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


#: The strategies without settings, by name.
STRATEGIES: Final[Mapping[str, Allocate]] = {
    "average": averagely,
    "circle": averagely_by_circle,
    "consistent-hash": consistent_hash,
}


def strategy(named: str | Allocate) -> Allocate:
    """Return the strategy of this name, or the given function. Raises `ValueError` for an unknown name."""
    if not isinstance(named, str):
        return named
    found = STRATEGIES.get(named)
    if found is None:
        raise ValueError(
            f"{named!r} is not an allocation strategy: use {', '.join(STRATEGIES)}, or a function"
        )
    return found


def on_wire(allocate: Allocate, namespace: Namespace | None) -> Allocate:
    """Adapt the strategy to a namespace: `consistent_hash` hashes topic names, and members in other languages use the
    names that brokers know."""
    if namespace is None or allocate is not consistent_hash:
        return allocate

    def allocate_on_wire(
        me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        plain = {queue._replace(topic=namespace.wrap(queue.topic)): queue for queue in queues}
        return [plain[queue] for queue in allocate(me, list(plain), members)]

    return allocate_on_wire


def _room_in_name(broker: str) -> str | None:
    # Java's `split` drops empty parts at the end.
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
