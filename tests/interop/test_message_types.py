"""Types of topics: set with Apache's tool, with sends of Java's producers to a broker that checks them."""

from collections.abc import Callable

import pytest

import rmqpy
from rmqpy import errors

from . import wire
from .clients import InteropClient, ProcessClient
from .servers import Cluster

TOPIC = "typed"


def test_topic_type_set_by_mqadmin_is_shown_and_enforced(
    cluster_of: Callable[[str], Cluster], client_of: Callable[[str], InteropClient]
) -> None:
    cluster, java = cluster_of("rmqpy"), client_of("java-5.5.0")
    assert isinstance(java, ProcessClient)

    def mqadmin(line: str) -> str:
        return java.mqadmin(*line.format(broker=cluster.broker).split(), "-n", cluster.namesrv)

    wire.create_topic(cluster.namesrv, cluster.broker, TOPIC, queues=1)
    made = mqadmin(f"updateTopic -b {{broker}} -t {TOPIC} -r 1 -w 1 -a +message.type=FIFO")
    assert "success" in made
    with rmqpy.Admin(cluster.namesrv) as admin, rmqpy.Producer(cluster.namesrv) as producer:
        assert admin.topic_types()[TOPIC] == "FIFO"
        producer.send(TOPIC, "whatever it is")
        assert "success" in mqadmin("updateBrokerConfig -b {broker} -k enableTopicMessageTypeCheck -v true")
        try:
            producer.send(TOPIC, "in turn", sharding_key="customer-7")
            with pytest.raises(errors.SendError, match="expected type is FIFO, but actual type is NORMAL"):
                producer.send(TOPIC, "whatever it is")
            (printed,) = java.mqadmin_all(
                [["sendMessage", "-t", TOPIC, "-p", "hello", "-n", cluster.namesrv]]
            )
            assert "CODE: 13" in printed.out + printed.err
            assert "expected type is FIFO, but actual type is NORMAL" in printed.out + printed.err
        finally:
            mqadmin("updateBrokerConfig -b {broker} -k enableTopicMessageTypeCheck -v false")
