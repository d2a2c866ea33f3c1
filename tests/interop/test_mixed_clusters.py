"""Our broker at Apache's name server: routes, sends and consumption work.

Apache's broker runs in another cluster; `test_three_brokers` has the reverse.
"""

from collections.abc import Callable, Iterator

import pytest

from . import servers, wire
from .clients import InteropClient, ProcessClient
from .messages import bodies, numbered
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


@pytest.mark.parametrize("client_name", ["java-5.5.0", "java-4.9.8", "go", "rmqpy"])
def test_a_client_finds_the_broker_and_its_messages(
    mixed: Cluster, client_name: str, client_of: Callable[[str], InteropClient]
) -> None:
    client = client_of(client_name)
    topic = f"mixed-{client_name}".replace(".", "_")
    wire.create_topic(mixed.namesrv, mixed.broker, topic, queues=4)
    messages = numbered(100)
    client.send(mixed.namesrv, topic, messages, mode="async")
    if isinstance(client, ProcessClient):
        listener = client.listen(mixed.namesrv, topic, f"{topic}-group")
        listener.wait_for(100)
        received = listener.stop()
    else:
        received = client.pull(mixed.namesrv, topic, f"{topic}-group", api="poll", count=100)
    assert bodies(received) == [message.body for message in messages]


def test_a_topic_deleted_at_the_broker_leaves_the_name_server(
    mixed: Cluster, client_of: Callable[[str], InteropClient]
) -> None:
    admin = client_of("java-5.5.0")
    assert isinstance(admin, ProcessClient)
    wire.create_topic(mixed.namesrv, mixed.broker, "mixed-short-lived", queues=4)
    admin.mqadmin("deleteTopic", "-n", mixed.namesrv, "-c", CLUSTER, "-t", "mixed-short-lived")
    assert not wire.has_route(mixed.namesrv, "mixed-short-lived")
