"""An Apache broker at our name server, and our broker at Apache's: routes, sends and consumption go through."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import servers, wire
from .messages import bodies, numbered
from .peers import Peer, ProcessPeer
from .servers import Cluster

pytestmark = pytest.mark.timeout(100, func_only=True)


@pytest.fixture(scope="module", params=["apache-broker-at-rmqpy-namesrv", "rmqpy-broker-at-apache-namesrv"])
def mixed(
    request: pytest.FixtureRequest, originals: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("mixed")
    jars = originals("apache")
    if request.param == "apache-broker-at-rmqpy-namesrv":
        with (
            servers.rmqpy_name_server(folder) as (namesrv, first),
            servers.apache_broker(jars, folder, namesrv) as (broker, second),
        ):
            yield Cluster(namesrv, broker, (first, second))
    else:
        with (
            servers.apache_name_server(jars, folder) as (namesrv, first),
            servers.rmqpy_broker(folder, namesrv) as (broker, second),
        ):
            yield Cluster(namesrv, broker, (first, second))


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


def test_a_topic_deleted_at_the_broker_leaves_the_name_server(mixed: Cluster, peer_of: Callable[[str], Peer]) -> None:
    admin = peer_of("java-5.5.0")
    assert isinstance(admin, ProcessPeer)
    wire.create_topic(mixed.namesrv, mixed.broker, "mixed-short-lived", queues=4)
    admin.mqadmin("deleteTopic", "-n", mixed.namesrv, "-c", servers.CLUSTER_NAME, "-t", "mixed-short-lived")
    assert not wire.has_route(mixed.namesrv, "mixed-short-lived")
