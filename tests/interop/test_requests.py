"""Requests and replies between rmqpy, Java and Go, as requesters and as repliers, at our broker and at Apache's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import rmqpy
from rmqpy import errors

from . import wire
from .clients import InteropClient, ProcessClient
from .servers import Cluster

#: Enough for a consumer that has just joined its group.
WAIT_S = 60.0
FOREIGN = ("java-5.5.0", "java-4.9.8", "go")
#: Requester, replier and broker. Two clients of one language are two processes.
PAIRINGS = [
    *((requester, "rmqpy", "rmqpy") for requester in FOREIGN),
    *(("rmqpy", replier, "rmqpy") for replier in FOREIGN),
    ("rmqpy", "rmqpy", "rmqpy"),
    ("java-5.5.0", "java-4.9.8", "rmqpy"),
    ("java-4.9.8", "java-5.5.0", "rmqpy"),
    ("java-5.5.0", "java-5.5.0", "rmqpy"),
    ("go", "java-5.5.0", "rmqpy"),
    ("java-5.5.0", "go", "rmqpy"),
    ("rmqpy", "rmqpy", "apache"),
    ("java-5.5.0", "rmqpy", "apache"),
    ("rmqpy", "java-5.5.0", "apache"),
    ("go", "rmqpy", "apache"),
    ("rmqpy", "go", "apache"),
]


@contextmanager
def ours(namesrv: str, topic: str, group: str) -> Iterator[None]:
    consumer = rmqpy.PushConsumer(group, namesrv, start_from="earliest")

    @consumer.on(topic)
    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Reply:
        return rmqpy.Reply(message.text().upper(), properties={"language": "python"})

    with consumer:
        yield


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("requester", "replier", "kind"), PAIRINGS, ids=["-".join(each) for each in PAIRINGS]
)
def test_a_request_is_answered(
    client_of: Callable[[str], InteropClient],
    cluster_of: Callable[[str], Cluster],
    requester: str,
    replier: str,
    kind: str,
) -> None:
    cluster = cluster_of(kind)
    topic = f"requests-{requester}-{replier}-{kind}".replace(".", "_")
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 4)
    language = "python" if replier == "rmqpy" else replier.partition("-")[0]
    replying = ours
    if replier != "rmqpy":
        process = client_of(replier)
        assert isinstance(process, ProcessClient)
        replying = process.replying
    with replying(cluster.namesrv, topic, topic):
        for number in range(5):
            body = f"apples {number}".encode()
            if requester == "rmqpy":
                with rmqpy.Producer(cluster.namesrv, send_timeout=30.0) as producer:
                    reply = producer.request(topic, body, timeout=WAIT_S)
                    got, properties = reply.body, dict(reply.properties)
            else:
                asking = client_of(requester)
                assert isinstance(asking, ProcessClient)
                got, properties = asking.request(cluster.namesrv, topic, body, seconds=WAIT_S)
            assert got == body.upper()
            assert properties["language"] == language
            assert properties["MSG_TYPE"] == "reply"
            assert int(properties["PUSH_REPLY_TIME"]) > 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("requester", FOREIGN)
def test_unanswered_request_times_out_at_foreign_requesters(
    client_of: Callable[[str], InteropClient], cluster_of: Callable[[str], Cluster], requester: str
) -> None:
    cluster, client = cluster_of("rmqpy"), client_of(requester)
    assert isinstance(client, ProcessClient)
    topic = f"unanswered-{requester}".replace(".", "_")
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    with pytest.raises(RuntimeError, match=r"RequestTimeoutException|timeout|timed out"):
        client.request(cluster.namesrv, topic, b"anybody?", seconds=1.0)


@pytest.mark.timeout(300)
def test_unanswered_request_times_out_at_our_requester_at_either_broker(
    cluster_of: Callable[[str], Cluster],
) -> None:
    cluster, topic = cluster_of("apache"), "unanswered-rmqpy"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    with rmqpy.Producer(cluster.namesrv, send_timeout=30.0) as producer, pytest.raises(errors.RequestTimeout):
        producer.request(topic, b"anybody?", timeout=3.0)
