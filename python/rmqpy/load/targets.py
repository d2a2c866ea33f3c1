"""The brokers and queues a load goes to, asked for once, before it begins."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from rmqpy._native import Client
from rmqpy.admin.topics import QueueState, Topics
from rmqpy.config.client import addresses
from rmqpy.errors import ConfigError, TopicNotFound
from rmqpy.remoting.client import BlockingCaller, run
from rmqpy.remoting.nameservers import NameServers


class Target(NamedTuple):
    """One broker, with the queues to use there and the offsets they begin at; what `_native.Load` takes."""

    address: str
    broker: str
    queues: list[tuple[int, int]]


def writable(namesrv: str, topic: str, *, queues: int, timeout: float) -> list[Target]:
    """Where messages of `topic` go. A topic that does not exist is made, with `queues` on each broker."""

    async def states(topics: Topics) -> list[QueueState]:
        try:
            return await topics.describe(topic)
        except TopicNotFound:
            await topics.create(topic, read_queues=queues, write_queues=queues)
            return await topics.describe(topic)

    found = [state for state in _ask(namesrv, timeout, states) if "W" in state.permission]
    if not found:
        raise ConfigError(f"topic {topic} has no queue that takes messages; look at its permissions")
    return _by_broker(found)


def readable(namesrv: str, topic: str, *, timeout: float) -> list[Target]:
    """The queues of `topic` that hold messages.

    Raises `TopicNotFound`, and `ConfigError` when all are empty: there would be nothing to measure.
    """
    states = _ask(namesrv, timeout, lambda topics: topics.describe(topic))
    found = [state for state in states if "R" in state.permission and state.end > state.begin]
    if not found:
        raise ConfigError(f"topic {topic} holds no messages; send some first: rmqpy bench produce {topic}")
    return _by_broker(found)


def _ask(
    namesrv: str, timeout: float, question: Callable[[Topics], Coroutine[Any, Any, list[QueueState]]]
) -> list[QueueState]:
    client = Client(connect_timeout_ms=round(timeout * 1000))
    try:
        servers = NameServers(addresses(namesrv), timeout=timeout)
        return run(question(Topics(BlockingCaller(client), servers, timeout=timeout)))
    finally:
        client.close()


def _by_broker(states: list[QueueState]) -> list[Target]:
    targets: dict[str, Target] = {}
    for state in states:
        target = targets.setdefault(state.address, Target(state.address, state.broker, []))
        target.queues.append((state.queue_id, state.begin))
    return list(targets.values())
