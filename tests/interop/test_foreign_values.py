"""Values that only other programs write, at Apache's tools: each prints them, and none fails.

The same values at our own consumers, commands, console and Spark: tests/client, tests/cli and tests/spark.
"""

import itertools
import re
from collections.abc import Callable

import pytest

import foreign
import rmqpy
from foreign import BORN_MS

from .clients import InteropClient, ProcessClient
from .servers import BROKER_NAME, Cluster
from .toolchain import JAVA_CLIENTS

TOPIC = "foreign-values"
_numbers = itertools.count()
#: Not UTF-8, and a control sequence of a terminal in a property.
BODY = b"\xff\xfe\x1b[31m"

pytestmark = pytest.mark.timeout(200, func_only=True)


@pytest.fixture(scope="module")
def cluster(cluster_of: Callable[[str], Cluster]) -> Cluster:
    """Our servers, with one message for each time of birth; counts and flags are negative."""
    cluster = cluster_of("rmqpy")
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.create_topic(TOPIC, read_queues=1, write_queues=1)
    with foreign.producer(cluster, TOPIC) as store:
        for born in BORN_MS:
            store(
                BODY, {"KEYS": "k", "odd\u202e": "\x1b[31m"}, born_timestamp=born, reconsume_times=-7, flag=-1
            )
    return cluster


@pytest.fixture(params=JAVA_CLIENTS)
def java(request: pytest.FixtureRequest, client_of: Callable[[str], InteropClient]) -> ProcessClient:
    client = client_of(f"java-{request.param}")
    assert isinstance(client, ProcessClient)
    return client


def _messages(cluster: Cluster) -> list[rmqpy.ReceivedMessage]:
    with rmqpy.PullConsumer("probe", cluster.namesrv, start_from="earliest", auto_commit=False) as consumer:
        consumer.assign(consumer.queues(TOPIC))
        found: list[rmqpy.ReceivedMessage] = []
        while len(found) < len(BORN_MS):
            found += consumer.poll(5.0)
    return found


def test_a_java_consumer_receives_each_of_them(cluster: Cluster, java: ProcessClient) -> None:
    for api in java.pulls:
        group = f"foreign-{next(_numbers)}"
        received = java.pull(cluster.namesrv, TOPIC, group, api=api, count=len(BORN_MS))
        assert [message.body for message in received] == [BODY] * len(BORN_MS), api


@pytest.mark.parametrize("command", ["printMsg", "consumeMessage"])
def test_a_java_tool_prints_each_of_them(cluster: Cluster, java: ProcessClient, command: str) -> None:
    printed = java.mqadmin(command, "-t", TOPIC, "-n", cluster.namesrv)
    assert "Exception" not in printed, printed
    assert len(re.findall("MSGID:", printed)) == len(BORN_MS), printed


def test_a_java_tool_finds_each_by_key_and_by_id(cluster: Cluster, java: ProcessClient) -> None:
    found = java.mqadmin("queryMsgByKey", "-t", TOPIC, "-k", "k", "-n", cluster.namesrv)
    assert "Exception" not in found, found
    for message in _messages(cluster):
        assert message.message_id in found
        topic = ("-t", TOPIC) if java.name.startswith("java-5") else ()
        shown = java.mqadmin("queryMsgById", "-i", message.offset_message_id, *topic, "-n", cluster.namesrv)
        assert "\tat " not in shown, "a stack trace"
        assert "Reconsume Times:" in shown, shown


def test_a_java_tool_shows_the_topic(cluster: Cluster, java: ProcessClient) -> None:
    printed = java.mqadmin("topicStatus", "-t", TOPIC, "-n", cluster.namesrv)
    assert "Exception" not in printed, printed
    assert re.search(rf"{BROKER_NAME} +0 +0 +{len(BORN_MS)} ", printed), printed
