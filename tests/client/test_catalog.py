"""Queries about many queues, to brokers that answer and brokers that do not."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqpy
import rmqpy.testing
from brokerprocess import broker_process
from rmqpy import errors
from rmqpy.protocol.requests.offsets import queue_limits

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cluster() -> Iterator[rmqpy.testing.Cluster]:
    """Two brokers, each with two queues of topic `t` and of topic `u`; five messages in one of them."""
    with rmqpy.testing.Cluster(brokers=["broker-a", "broker-b"]) as cluster:
        with rmqpy.Admin(cluster.namesrv) as admin:
            for topic in ("t", "u"):
                admin.create_topic(topic, read_queues=2, write_queues=2)
        with rmqpy.Producer(cluster.namesrv) as producer:
            for _ in range(5):
                producer.send("t", b"x", queue=queue("broker-a", 1))
        yield cluster


def queue(broker: str, queue_id: int, topic: str = "t") -> rmqpy.MessageQueue:
    return rmqpy.MessageQueue(topic, broker, queue_id)


def test_queues_of_several_topics_come_topic_by_topic(cluster: rmqpy.testing.Cluster) -> None:
    with rmqpy.Catalog(cluster.namesrv) as catalog:
        found = catalog.queues("u", "t")
        assert found == catalog.queues("u") + catalog.queues("t")
        assert len(found) == 8
        assert catalog.queues("u", "nowhere", skip_missing=True) == catalog.queues("u")
        with pytest.raises(errors.TopicNotFound, match="nowhere"):
            catalog.queues("u", "nowhere")


def test_catalog_reports_offsets_and_missing_queues(cluster: rmqpy.testing.Cluster) -> None:
    with rmqpy.Catalog(cluster.namesrv) as catalog:
        known = dict.fromkeys(catalog.queues("t", "u"), (0, 0)) | {queue("broker-a", 1): (0, 5)}
        absent = [queue("broker-a", 2), queue("broker-b", 0, "nowhere")]
        assert catalog.offsets([*known, *absent]) == known | dict.fromkeys(absent)


def test_unregistered_broker_is_skipped_or_named(cluster: rmqpy.testing.Cluster) -> None:
    cluster.stop("broker-b")
    asked = [queue("broker-a", 1), queue("broker-b", 1)]
    with rmqpy.Catalog(cluster.namesrv) as catalog:
        assert catalog.offsets(asked, skip_unreachable=True) == {asked[0]: (0, 5)}
        with pytest.raises(errors.ConnectError, match="broker broker-b is not registered"):
            catalog.offsets(asked)


def test_unresponsive_broker_costs_one_timeout(cluster: rmqpy.testing.Cluster, tmp_path: Path) -> None:
    with broker_process(cluster.namesrv, tmp_path, "broker-c") as broker:
        with rmqpy.Admin(cluster.namesrv) as admin:
            admin.create_topic("v", read_queues=2000, write_queues=2000)
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv, request_timeout=2)
        with rmqpy.Catalog(config) as catalog, broker.silent():
            asked = [queue("broker-c", number, "v") for number in range(2000)]
            began = time.monotonic()
            assert catalog.ends([*asked, queue("broker-a", 1)], skip_unreachable=True) == {
                queue("broker-a", 1): 5
            }
            # At most 256 requests are in flight: one wait for each 256 would take 16 seconds.
            assert time.monotonic() - began < 12
            with pytest.raises(errors.RequestTimeout, match="broker broker-c does not answer"):
                catalog.ends(asked)


@pytest.mark.parametrize(
    "body",
    [
        # As Java's writer and ours lay it out, and in other layouts.
        b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:{"lastUpdateTimestamp":9,"maxOffset":7,"minOffset":1}}}',
        b'{"offsetTable":{{"queueId":3,"brokerName":"b","topic":"t"}:{"minOffset":1,"maxOffset":7,"lastUpdateTimestamp":9}}}',
        b'{"offsetTable":{"{\\"queueId\\":3,\\"brokerName\\":\\"b\\",\\"topic\\":\\"t\\"}":'
        b'{"minOffset":1,"maxOffset":7,"lastUpdateTimestamp":9}}}',
    ],
)
def test_limits_are_read_in_every_layout(body: bytes) -> None:
    assert queue_limits(body) == {3: (1, 7)}


@pytest.mark.parametrize("body", [b"", b"{", b'{"offsetTable":7}', b'{"queueId":'])
def test_unreadable_limits_are_an_error(body: bytes) -> None:
    with pytest.raises(errors.DecodeError):
        queue_limits(body)
