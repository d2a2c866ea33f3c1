"""Our broker at Apache's name server: routes, sends and consumption go through.

Beside it, in a cluster of its own, is Apache's broker; the other way round is in `test_three_brokers`.
"""

from collections.abc import Callable, Iterator

import pytest

from . import servers, wire
from .messages import bodies, numbered
from .peers import Peer, ProcessPeer
from .servers import Cluster

NAME, CLUSTER = "broker-ours", "mixed"

pytestmark = pytest.mark.timeout(100, func_only=True)


@pytest.fixture(scope="module")
def mixed(
    cluster_of: Callable[[str], Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    namesrv = cluster_of("apache").namesrv
    with servers.rmqpy_broker(tmp_path_factory.mktemp("mixed"), namesrv, NAME, CLUSTER) as (broker, child):
        yield Cluster(namesrv, broker, (child,))


@pytest.mark.parametrize("client", ["java-5.5.0", "java-4.9.8", "go", "rmqpy"])
def test_a_client_finds_the_broker_and_its_messages(
    mixed: Cluster, client: str, peer_of: Callable[[str], Peer]
) -> None:
    peer = peer_of(client)
    topic = f"mixed-{client}".replace(".", "_")
    wire.create_topic(mixed.namesrv, mixed.broker, topic, queues=4)
    messages = numbered(100)
    peer.send(mixed.namesrv, topic, messages, mode="async")
    if isinstance(peer, ProcessPeer):
        listener = peer.listen(mixed.namesrv, topic, f"{topic}-group")
        listener.wait_for(100)
        received = listener.stop()
    else:
        received = peer.pull(mixed.namesrv, topic, f"{topic}-group", api="poll", count=100)
    assert bodies(received) == [message.body for message in messages]


def test_a_topic_deleted_at_the_broker_leaves_the_name_server(
    mixed: Cluster, peer_of: Callable[[str], Peer]
) -> None:
    admin = peer_of("java-5.5.0")
    assert isinstance(admin, ProcessPeer)
    wire.create_topic(mixed.namesrv, mixed.broker, "mixed-short-lived", queues=4)
    admin.mqadmin("deleteTopic", "-n", mixed.namesrv, "-c", CLUSTER, "-t", "mixed-short-lived")
    assert not wire.has_route(mixed.namesrv, "mixed-short-lived")
