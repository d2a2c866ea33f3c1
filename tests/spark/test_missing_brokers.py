"""Reads while a broker is missing, registered or not: it is named, nothing counts as lost, and messages from before the
stream began are ignored."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqpy
import rmqpy.testing
from brokerprocess import broker_process
from pyspark_rocketmq.batch import TopicReader
from pyspark_rocketmq.offsets import Position, Queue, format_offsets
from pyspark_rocketmq.schema import default_schema
from pyspark_rocketmq.source import RocketMQSource
from pyspark_rocketmq.stream import TopicStream
from rmqpy import cli

pytestmark = pytest.mark.timeout(120)

A, B = Queue("t", "broker-a", 0), Queue("t", "broker-b", 0)


class Two:
    """Two brokers with a topic of one queue each, of which `broker-b` can be missing."""

    def __init__(self, namesrv: str, missing: Callable[[], AbstractContextManager[None]]) -> None:
        self.namesrv = namesrv
        self.missing = missing

    def send(self, queue: Queue, count: int) -> None:
        config = rmqpy.ClientConfig(namesrv=self.namesrv, route_refresh=0.1)
        with rmqpy.Producer(config, send_timeout=30, retries=100) as producer:
            for _ in range(count):
                assert producer.send("t", b"x", queue=rmqpy.MessageQueue(*queue)).ok

    def wait_for_route(self) -> None:
        """Wait until name servers list both queues."""
        config = rmqpy.ClientConfig(namesrv=self.namesrv, route_refresh=0.05)
        with rmqpy.Catalog(config) as catalog:
            while len(catalog.queues("t", skip_missing=True)) < 2:
                pass

    def source(self, **options: str) -> RocketMQSource:
        hasty = {
            "requestTimeoutMs": "300",
            "fetchOffset.numRetries": "3",
            "fetchOffset.retryIntervalMs": "10",
        }
        given = {"nameserver": self.namesrv} | hasty | options
        return RocketMQSource(given if "assign" in options else {"subscribe": "t"} | given)

    def stream(self, **options: str) -> TopicStream:
        return self.source(offsetPollIntervalMs="10", **options).streamReader(
            schema=default_schema(with_properties=False)
        )

    def batch(self, **options: str) -> TopicReader:
        return self.source(**options).reader(schema=default_schema(with_properties=False))


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Two]:
    """Missing: it stays registered, and does not answer."""
    with rmqpy.testing.Cluster() as cluster, broker_process(cluster.namesrv, tmp_path, "broker-b") as process:
        assert cli.run(["topic", "create", "t", "--queues", "1", "-n", cluster.namesrv]) == 0
        yield Two(cluster.namesrv, process.silent)


@pytest.fixture
def away() -> Iterator[Two]:
    """Missing: it was stopped, and no name server knows it."""
    with rmqpy.testing.Cluster(brokers=["broker-a", "broker-b"]) as cluster:
        assert cli.run(["topic", "create", "t", "--queues", "1", "-n", cluster.namesrv]) == 0

        @contextmanager
        def missing() -> Iterator[None]:
            cluster.stop("broker-b")
            try:
                yield
            finally:
                cluster.start("broker-b")
                two.wait_for_route()

        two = Two(cluster.namesrv, missing)
        yield two


@pytest.fixture(params=["silent", "away"])
def two(request: pytest.FixtureRequest) -> Two:
    """Missing in either way."""
    found: Two = request.getfixturevalue(request.param)
    return found


def queues(offset: dict[str, Any]) -> dict[Queue, int]:
    return dict(Position.of_json(offset).queues)


def rows(reader: TopicStream, start: dict[str, Any], end: dict[str, Any]) -> int:
    return sum(batch.num_rows for task in reader.partitions(start, end) for batch in reader.read(task))


def available_now(two: Two, at: dict[str, Any], **options: str) -> tuple[dict[str, Any], int]:
    """Run over the available messages; return the end and the read rows."""
    reader, count = two.stream(**options), 0
    reader.fix_end()
    while (end := reader.next_offset(at, is_limited=False)) is not at:
        count += rows(reader, at, end)
        at = end
    return json.loads(json.dumps(at)), count


@pytest.mark.parametrize("is_fatal", ["true", "false"])
def test_broker_that_was_not_queried_counts_no_loss(two: Two, is_fatal: str) -> None:
    two.send(A, 3)
    two.send(B, 3)
    first = two.stream(startingOffsets="earliest")
    start = first.initialOffset()
    at, count = available_now(two, start, failOnDataLoss=is_fatal)
    assert (queues(at), count) == ({A: 3, B: 3}, 6)
    two.send(A, 1)
    two.send(B, 2)
    with two.missing(), pytest.warns(UserWarning, match=f"brokers do not answer for {B}"):
        at, count = available_now(two, at, failOnDataLoss=is_fatal)
    assert (queues(at), count) == ({A: 4, B: 3}, 1)
    at, count = available_now(two, at, failOnDataLoss=is_fatal)
    assert (queues(at), count) == ({A: 4, B: 5}, 2)


def test_broker_that_returns_after_planning_is_left_to_the_next_run(two: Two) -> None:
    two.send(A, 3)
    two.send(B, 3)
    at = Position({A: 0, B: 1}).to_json()
    reader = two.stream()
    with two.missing():
        reader.fix_end()
    end = reader.next_offset(at, is_limited=False)
    assert queues(end) == {A: 3, B: 1}
    assert rows(reader, at, end) == 3
    at, count = available_now(two, end)
    while queues(at) == queues(end):
        # In this process the route that was known before is still young.
        at, count = available_now(two, at)
    assert (queues(at), count) == ({A: 3, B: 3}, 2)


@pytest.mark.parametrize("options", [{}, {"maxBytesPerTrigger": "1000"}, {"maxOffsetsPerTrigger": "10"}])
def test_messages_of_a_returning_broker_from_before_the_stream_are_skipped(
    two: Two, options: dict[str, str]
) -> None:
    two.send(A, 3)
    two.send(B, 3)
    reader = two.stream(**options)
    with two.missing():
        start = reader.initialOffset()
        assert queues(start) == {A: 3}
        two.send(A, 1)
        at = reader.next_offset(start, is_limited=False)
        assert rows(reader, start, at) == 1
    two.send(B, 2)
    end = at
    while B not in queues(end):
        end = reader.next_offset(at, is_limited=True)
    assert queues(end) == {A: 4, B: 5}
    # A batch that is repeated by another driver is the same one.
    assert rows(two.stream(), at, json.loads(json.dumps(end))) == 2


def test_a_stream_from_the_earliest_message_reads_what_a_missing_broker_held(two: Two) -> None:
    two.send(B, 3)
    reader = two.stream(startingOffsets="earliest")
    with two.missing():
        start = reader.initialOffset()
        assert queues(start) == {A: 0}
    end = start
    while B not in queues(end):
        end = reader.next_offset(start, is_limited=False)
    assert rows(reader, start, end) == 3


def test_a_stream_from_a_time_reads_from_it_in_the_queues_of_a_missing_broker(two: Two) -> None:
    two.send(B, 3)
    two.send(A, 1)
    reader = two.stream(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest")
    with two.missing():
        start = reader.initialOffset()
    end = start
    while B not in queues(end):
        end = reader.next_offset(start, is_limited=False)
    assert rows(reader, start, end) == 4


def test_a_query_that_is_restarted_while_its_only_broker_is_missing_waits_for_it() -> None:
    with rmqpy.testing.Cluster() as cluster:
        assert cli.run(["topic", "create", "t", "--queues", "1", "-n", cluster.namesrv]) == 0
        two = Two(cluster.namesrv, lambda: contextmanager(lambda: iter([None]))())
        two.send(A, 3)
        at = Position({A: 1}).to_json()
        cluster.stop("broker-a")
        reader = two.stream()
        with pytest.warns(UserWarning, match=f"brokers do not answer for {A}"):
            assert reader.next_offset(at, is_limited=False) is at
        cluster.start("broker-a")
        end = at
        while end is at:
            end = reader.next_offset(at, is_limited=False)
        assert rows(reader, at, end) == 2


def test_batch_names_the_missing_broker(silent: Two) -> None:
    silent.send(B, 3)
    with (
        silent.missing(),
        pytest.raises(rmqpy.errors.RequestTimeout, match="broker broker-b does not answer"),
    ):
        silent.batch().partitions()


@pytest.mark.parametrize(
    "options",
    [
        {"assign": json.dumps({"t": {"broker-a": [0], "broker-b": [0]}})},
        {"startingOffsets": format_offsets({B: 1})},
    ],
)
def test_explicitly_named_queue_needs_its_broker(away: Two, options: dict[str, str]) -> None:
    away.send(B, 3)
    with away.missing():
        for plan in (away.batch(**options).partitions, away.stream(**options).initialOffset):
            with pytest.raises(rmqpy.errors.ConnectError, match="broker broker-b is not registered"):
                plan()


def test_deselected_topic_of_a_query_is_named(away: Two) -> None:
    at = Position({A: 0, Queue("u", "broker-a", 0): 7}).to_json()
    with pytest.raises(rmqpy.errors.DataLoss, match="u/broker-a/0 is no longer selected by the options"):
        away.stream().next_offset(at, is_limited=False)
