"""Vectors of allocation strategies, compared with rmqpy's results.

The lines were generated with the official Java classes by `tests/interop/java/client/.../Allocations.java`, which
describes them.
"""

from rmqpy.client.group import allocation
from rmqpy.client.group.allocation import Allocate
from rmqpy.message import MessageQueue


def mismatch(line: str) -> str | None:
    """Return the difference between a vector and rmqpy's result, or `None`."""
    name, setting, described, joined, shares = line.split(" ")
    brokers = [
        (broker, int(count)) for broker, count in (part.rsplit(":", 1) for part in described.split(","))
    ]
    queues = [MessageQueue("T", broker, number) for broker, count in brokers for number in range(count)]
    members = joined.split(",")
    allocate = _strategy(name, setting, queues)
    ours = ";".join(
        ",".join(str(queues.index(queue)) for queue in allocate(me, queues, members)) for me in members
    )
    return None if f"{ours}." == shares else f"{line}\n  rmqpy: {ours}."


def _strategy(name: str, setting: str, queues: list[MessageQueue]) -> Allocate:
    outer, _, inner = name.partition("-")
    if outer == "by_configuration":
        return allocation.by_configuration(queues[int(index)] for index in setting.split(",") if index)
    if outer == "by_machine_room":
        return allocation.by_machine_room(setting.split(","))
    if outer == "machine_room_nearby":
        nearest = _strategy(inner, setting, queues)
        return allocation.machine_room_nearby(
            nearest, lambda broker: broker.split("@")[0], lambda member: member.split("~")[0]
        )
    strategy: Allocate = getattr(allocation, outer)
    return strategy
