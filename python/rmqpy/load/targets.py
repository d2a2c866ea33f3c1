"""Targets of a load: brokers and queues, looked up once at the start."""

from typing import NamedTuple

from rmqpy.admin.client import Admin
from rmqpy.admin.topics import QueueState
from rmqpy.config.client import ClientConfig
from rmqpy.errors import ConfigError, TopicNotFound


class Target(NamedTuple):
    """One broker, its queues and their first offsets, for `_native.Load`."""

    address: str
    broker: str
    queues: list[tuple[int, int]]


def writable(config: ClientConfig, topic: str, *, queues: int) -> list[Target]:
    """Brokers with writable queues of `topic`. An unknown topic is created with `queues` on each broker."""

    with Admin(config) as admin:
        try:
            states = admin.topic(topic)
        except TopicNotFound:
            admin.create_topic(topic, read_queues=queues, write_queues=queues, exist_ok=True)
            states = admin.topic(topic)
    found = [state for state in states if "W" in state.permission]
    if not found:
        raise ConfigError(f"topic {topic} has no queue that accepts messages; check its permissions")
    return _by_broker(found)


def readable(config: ClientConfig, topic: str) -> list[Target]:
    """The queues of `topic` that hold messages.

    Raises `TopicNotFound`, and `ConfigError` if all are empty: there would be nothing to measure.
    """
    with Admin(config) as admin:
        found = [state for state in admin.topic(topic) if "R" in state.permission and state.end > state.begin]
    if not found:
        raise ConfigError(f"topic {topic} holds no messages; send some first: rmqpy bench produce {topic}")
    return _by_broker(found)


def _by_broker(states: list[QueueState]) -> list[Target]:
    targets: dict[str, Target] = {}
    for state in states:
        target = targets.setdefault(state.address, Target(state.address, state.broker, []))
        target.queues.append((state.queue_id, state.begin))
    return list(targets.values())
