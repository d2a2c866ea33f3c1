"""Recalls of timed messages: by Java's client at our broker, and by ours at Apache's."""

import time
from collections.abc import Callable

import pytest

import rmqpy
from rmqpy import errors

from . import wire
from .clients import InteropClient, ProcessClient
from .messages import MessageSpec
from .servers import Cluster

#: Long enough for a slow machine to recall a sent message.
DELAY_MS = 8_000


def test_java_recalls_a_message_at_our_broker(
    client_of: Callable[[str], InteropClient], cluster_of: Callable[[str], Cluster]
) -> None:
    java, cluster, topic = client_of("java-5.5.0"), cluster_of("rmqpy"), "recalled-by-java"
    assert isinstance(java, ProcessClient)
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    at_ms = str(time.time_ns() // 1_000_000 + DELAY_MS)
    specs = [MessageSpec(body, properties={"TIMER_DELIVER_MS": at_ms}) for body in (b"a", b"b", b"c")]
    first, second, _ = java.send(cluster.namesrv, topic, specs)
    assert first.recall_handle is not None
    assert second.recall_handle is not None
    assert java.recall(cluster.namesrv, topic, second.recall_handle) == second.id
    assert java.recall(cluster.namesrv, topic, second.recall_handle) == second.id
    for other, handle in [("another-topic", first.recall_handle), (topic, "damaged")]:
        with pytest.raises(RuntimeError, match=r"MQBrokerException|MQClientException"):
            java.recall(cluster.namesrv, other, handle)
    [*_, last] = java.pull(cluster.namesrv, topic, "pullers-of-recalled", api="lite", count=2, seconds=40.0)
    assert last.stored_ms >= int(at_ms)
    with pytest.raises(RuntimeError, match="recall failed"):
        java.recall(cluster.namesrv, topic, first.recall_handle)
    # Behind every message that was due, so that the wait has an end.
    java.send(cluster.namesrv, topic, [MessageSpec(b"d")])
    found = java.pull(cluster.namesrv, topic, "others-of-recalled", api="lite", count=3, seconds=40.0)
    assert sorted(message.body for message in found) == [b"a", b"c", b"d"]


def test_our_client_recalls_a_message_at_apaches_broker(cluster_of: Callable[[str], Cluster]) -> None:
    cluster, topic = cluster_of("apache"), "recalled-by-rmqpy"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    with (
        rmqpy.Producer(cluster.namesrv, send_timeout=10.0) as producer,
        rmqpy.PullConsumer("readers-of-recalled", cluster.namesrv, start_from="earliest") as consumer,
    ):
        at = time.time() + DELAY_MS / 1_000
        first, second, _ = (producer.send(topic, body, deliver_at=at) for body in (b"a", b"b", b"c"))
        assert first.recall_handle is not None
        assert second.recall_handle is not None
        assert producer.recall(topic, second.recall_handle) == second.message_id
        consumer.assign(consumer.queues(topic))
        found: set[bytes] = set()
        deadline = time.monotonic() + 60.0
        while len(found) < 2 and time.monotonic() < deadline:
            found |= {message.body for message in consumer.poll(0.5)}
        found |= {message.body for message in consumer.poll(2.0)}
        assert found == {b"a", b"c"}
        with pytest.raises(errors.RecallError, match="timestamp invalid"):
            producer.recall(topic, first.recall_handle)
