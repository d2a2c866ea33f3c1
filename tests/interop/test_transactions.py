"""Transactions of the official clients at our broker, and of ours at Apache's.

Goal: a committed message is visible once, a rolled-back one never; an unknown one is checked, at another member
if its producer is gone, and ends as answered. Method: consumed messages, and the contents of the topic's queues, which
no client filters.

CI runs each original client at our broker and our client at Apache's. `make campaign NAME=interop` runs every client at
either cluster, each pair of producers that hand over to each other, and a producer that is killed.
"""

import itertools
import os
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

import waiting

from . import wire
from .clients import InteropClient, ProcessClient
from .exchange import QUEUES, Exchange
from .folders import records
from .messages import MessageSpec, bodies, numbered
from .servers import Cluster

WAIT_S = 90.0
until = partial(waiting.until, seconds=WAIT_S)
pytestmark = pytest.mark.timeout(3 * WAIT_S, func_only=True)

IS_ALL = os.environ.get("RMQPY_INTEROP_ALL") == "1"
#: The cluster, and two producers: one that ends, and one of its group that answers for it.
SUCCESSIONS = [
    ("rmqpy", [("java-5.5.0", "java-4.9.8"), ("java-4.9.8", "go"), ("go", "rmqpy"), ("rmqpy", "java-5.5.0")]),
    ("apache", [("java-5.5.0", "rmqpy"), ("rmqpy", "go")]),
]
if IS_ALL:
    every_pair = list(itertools.permutations(["java-5.5.0", "java-4.9.8", "go", "rmqpy"], 2))
    SUCCESSIONS = [("rmqpy", every_pair), ("apache", every_pair)]

ORDER = MessageSpec(b'{"order": 4711}', tag="paid", keys=("A-1",), properties={"region": "eu"}, flag=7)


def stored(cluster: Cluster, topic: str) -> Counter[bytes]:
    """Return the bodies in the queues of a topic, with their counts."""
    found: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        offset, end = 0, wire.max_offset(cluster.broker, topic, queue_id)
        while offset < end:
            read = records(wire.pull(cluster.broker, topic, queue_id, offset))
            found.update(record.body for record in read)
            offset = read[-1].queue_offset + 1
    return found


def test_committed_messages_are_seen_and_rolled_back_ones_are_not(exchange: Exchange) -> None:
    client, namesrv, topic, group = exchange.client, exchange.cluster.namesrv, exchange.topic, exchange.group
    producers = f"{group}-producers"
    rolled_back = client.transact(namesrv, topic, producers, numbered(8, "rolled back"), decision="rollback")
    sent = client.transact(namesrv, topic, producers, [ORDER, *numbered(8)], decision="commit")
    received = exchange.consume(9)
    assert {outcome.status for outcome in rolled_back + sent} == {"SEND_OK"}
    assert bodies(received) == sorted([ORDER.body, *(message.body for message in numbered(8))])
    assert {message.id for message in received} == {outcome.id for outcome in sent}
    [order] = [message for message in received if message.body == ORDER.body]
    assert order.content() == ORDER
    assert order.properties["PGROUP"] == producers
    assert set(stored(exchange.cluster, topic).values()) == {1}


def test_unknown_transaction_is_checked_and_the_answer_applies(exchange: Exchange) -> None:
    client, namesrv, topic, group = exchange.client, exchange.cluster.namesrv, exchange.topic, exchange.group
    taken, refused = f"{group}-commits", f"{group}-rolls-back"
    client.transact(namesrv, topic, refused, numbered(3, "no"), decision="unknown", answer="rollback")
    client.transact(namesrv, topic, taken, numbered(3, "yes"), decision="unknown", answer="commit")
    expected = {message.body for message in numbered(3, "yes")}
    until(lambda: len({message.body for message in client.asked(refused)}) == 3)
    until(lambda: stored(exchange.cluster, topic).keys() >= expected)
    assert stored(exchange.cluster, topic) == Counter(expected)
    assert {message.body for message in client.asked(taken)} == expected
    assert {message.topic for message in client.asked(taken)} == {topic}


@pytest.mark.parametrize(("cluster_kind", "pairs"), SUCCESSIONS, ids=[kind for kind, _ in SUCCESSIONS])
def test_another_member_answers_for_a_closed_producer(
    cluster_of: Callable[[str], Cluster],
    client_of: Callable[[str], InteropClient],
    cluster_kind: str,
    pairs: list[tuple[str, str]],
) -> None:
    cluster, topic = cluster_of(cluster_kind), f"succession-{cluster_kind}"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, QUEUES)
    expected: Counter[bytes] = Counter()
    for gone, other in pairs:
        group = f"{cluster_kind}-from-{gone}-to-{other}".replace(".", "_")
        left = numbered(2, f"left by {gone} to {other}")
        # Go's client reports its group to brokers only after a send.
        present = numbered(1, f"of {other} after {gone}")
        client_of(gone).transact(cluster.namesrv, topic, group, left, decision="unknown")
        client_of(gone).leave(group)
        client_of(other).transact(cluster.namesrv, topic, group, present, decision="commit", answer="commit")
        expected.update(message.body for message in left + present)
    until(lambda: stored(cluster, topic).keys() >= expected.keys())
    assert stored(cluster, topic) == expected


@pytest.mark.skipif(not IS_ALL, reason="a JVM of its own; make campaign NAME=interop has it")
@pytest.mark.parametrize("cluster_kind", ["rmqpy", "apache"])
def test_another_member_answers_for_a_producer_that_was_killed(
    cluster_of: Callable[[str], Cluster],
    client_of: Callable[[str], InteropClient],
    member_of_group: Callable[[str], ProcessClient],
    cluster_kind: str,
) -> None:
    cluster, topic = cluster_of(cluster_kind), f"killed-{cluster_kind}"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, QUEUES)
    killed, other = member_of_group(f"transactions-at-{cluster_kind}"), client_of("rmqpy")
    killed.transact(cluster.namesrv, topic, topic, numbered(5, "left"), decision="unknown")
    killed.kill()
    other.transact(cluster.namesrv, topic, topic, numbered(1, "present"), decision="commit", answer="commit")
    expected = Counter(message.body for message in numbered(5, "left") + numbered(1, "present"))
    until(lambda: stored(cluster, topic).keys() >= expected.keys())
    assert stored(cluster, topic) == expected
