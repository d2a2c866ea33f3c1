"""The official dashboard, which no registry has: its requests, page by page, with its client library."""

import uuid
from collections.abc import Callable

import pytest

import rmqpy
from waiting import until

from .clients import InteropClient, ProcessClient
from .messages import MessageSpec
from .servers import Cluster

MESSAGE = MessageSpec(b"shown", tag="paid", keys=("A-1",))


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_every_dashboard_request_is_answered(
    version: str,
    cluster_name: str,
    client_of: Callable[[str], InteropClient],
    cluster_of: Callable[[str], Cluster],
) -> None:
    cluster, client = cluster_of(cluster_name), client_of(f"java-{version}")
    assert isinstance(client, ProcessClient)
    topic, group = f"shown-{uuid.uuid4().hex[:8]}", f"looks-{uuid.uuid4().hex[:8]}"
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_topic(topic, read_queues=1, write_queues=1)
        admin.create_group(group)
        admin.create_group("to-delete", exist_ok=True)
        with rmqpy.Producer(cluster.namesrv, group="shop") as producer:
            listener = client.listen(cluster.namesrv, topic, group)
            [sent] = client.send(cluster.namesrv, topic, [MESSAGE])
            producer.send(topic, b"so that its group has a member")
            listener.wait_for(2)
            [broker] = admin.brokers()
            # Java's consumers commit every five seconds.
            until(
                lambda: (
                    any(each.group == "shop" for each in admin.clients())
                    and any(each.topic == topic for each in admin.progress(group))
                )
            )
            outcomes = client.dashboard(
                cluster.namesrv,
                broker=broker.address,
                brokerName=broker.broker,
                topic=topic,
                group=group,
                producer="shop",
                messageId=sent.id,
            )
            listener.stop()
    assert len(outcomes) == 33
    assert {name: outcome for name, outcome in outcomes.items() if outcome != "ok"} == {}
