"""Two Java consumers of one group share a topic while one joins and one is killed.

Goal: none of 10,000 messages is lost, and each duplicate lies in a range that was not committed when its queue changed
owners. Method: the committed offsets of all queues are recorded just before each change; offsets only grow, so the new
owner of a queue began at the recorded one or later. The members' own timers are off, so only the broker's notifications
make them share and take over queues.
"""

from collections.abc import Callable, Iterable

import pytest

from waiting import until

from . import wire
from .clients import InteropClient, Listener, ProcessClient
from .messages import numbered
from .servers import Cluster

pytestmark = pytest.mark.timeout(200, func_only=True)

QUEUES = 8
MESSAGES = 10_000
PHASE = MESSAGES // 4

Position = tuple[int, int]
"""Queue id and queue offset, which identify a message of a topic."""


def test_no_message_is_lost_while_consumers_join_and_die(
    cluster_name: str,
    cluster_of: Callable[[str], Cluster],
    client_of: Callable[[str], InteropClient],
    member_of_group: Callable[[str], ProcessClient],
) -> None:
    cluster = cluster_of(cluster_name)
    topic = group = "interop-rebalance"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, QUEUES)
    producer = client_of("java-5.5.0")
    messages = numbered(MESSAGES)

    def send(phase: int) -> None:
        producer.send(cluster.namesrv, topic, messages[phase * PHASE : (phase + 1) * PHASE], mode="async")

    def committed() -> dict[int, int]:
        return {queue: wire.committed(cluster.broker, group, topic, queue) for queue in range(QUEUES)}

    send(0)
    first = member_of_group(f"first-{cluster_name}").listen(cluster.namesrv, topic, group)
    first.wait_for(PHASE)

    committed_at_join = committed()
    killed = member_of_group(f"second-{cluster_name}")
    second = killed.listen(cluster.namesrv, topic, group)
    send(1)
    send(2)
    second.wait_for(PHASE // 4)

    committed_at_kill = committed()
    killed.kill()
    count_at_kill = len(first.consumed())
    send(3)
    _wait_for_all(first, second)
    first.stop()

    before, after = _positions(first)[:count_at_kill], _positions(first)[count_at_kill:]
    others = _positions(second)
    assert len({queue for queue, _ in others}) == QUEUES // 2
    for positions in (before, others, after):
        assert len(set(positions)) == len(positions), "delivered twice to one owner of its queue"
    at_join = _explained(before, others, committed_at_join)
    at_kill = _explained([*before, *others], after, committed_at_kill)
    print(f"{at_join} duplicates after the join, {at_kill} after the kill")


def _wait_for_all(first: Listener, second: Listener) -> None:
    dead = {message.body for message in second.consumed()}
    until(lambda: len(dead | {message.body for message in first.consumed()}) >= MESSAGES)


def _positions(listener: Listener) -> list[Position]:
    return [message.position for message in listener.consumed()]


def _explained(earlier: Iterable[Position], later: Iterable[Position], committed: dict[int, int]) -> int:
    """Return how many of `later` had been delivered before; all of them must lie beyond the commits."""
    again = set(earlier) & set(later)
    unexplained = sorted((queue, offset) for queue, offset in again if offset < committed[queue])
    assert not unexplained, f"delivered again although committed at {committed}: {unexplained[:20]}"
    return len(again)
