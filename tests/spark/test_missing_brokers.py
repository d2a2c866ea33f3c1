"""Reads while a broker is missing, registered or not: it is said which, nothing counts as lost, and what it held before
a stream began is no news."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

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

ALL = ReadAllAvailable()
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
        """Until name servers tell of both queues."""
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
    """A run over what is there: where it ends, and the rows it read."""
    reader, count = two.stream(**options), 0
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(at, ALL)) is not at:
        count += rows(reader, at, end)
        at = end
    return json.loads(json.dumps(at)), count


@pytest.mark.parametrize("is_fatal", ["true", "false"])
def test_a_broker_that_is_not_asked_has_lost_nothing(two: Two, is_fatal: str) -> None:
    two.send(A, 3)
    two.send(B, 3)
    first = two.stream(startingOffsets="earliest")
    start = first.initialOffset()
    at, count = available_now(two, start, failOnDataLoss=is_fatal)
    assert (queues(at), count) == ({A: 3, B: 3}, 6)
    two.send(A, 1)
    two.send(B, 2)
    with two.missing(), pytest.warns(UserWarning, match=f"hold up {B}"):
        at, count = available_now(two, at, failOnDataLoss=is_fatal)
    assert (queues(at), count) == ({A: 4, B: 3}, 1)
    at, count = available_now(two, at, failOnDataLoss=is_fatal)
    assert (queues(at), count) == ({A: 4, B: 5}, 2)


def test_a_broker_that_comes_back_after_the_end_was_fixed_is_for_the_next_run(two: Two) -> None:
    two.send(A, 3)
    two.send(B, 3)
    at = Position({A: 0, B: 1}).to_json()
    reader = two.stream()
    with two.missing():
        reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(at, ALL)
    assert queues(end) == {A: 3, B: 1}
    assert rows(reader, at, end) == 3
    at, count = available_now(two, end)
    while queues(at) == queues(end):
        # In this process the route that was known before is still young.
        at, count = available_now(two, at)
    assert (queues(at), count) == ({A: 3, B: 3}, 2)


@pytest.mark.parametrize("options", [{}, {"maxBytesPerTrigger": "1000"}, {"maxOffsetsPerTrigger": "10"}])
def test_what_a_broker_held_before_a_stream_began_is_no_news(two: Two, options: dict[str, str]) -> None:
    two.send(A, 3)
    two.send(B, 3)
    reader = two.stream(**options)
    with two.missing():
        start = reader.initialOffset()
        assert queues(start) == {A: 3}
        two.send(A, 1)
        at = reader.latestOffset(start, ALL)
        assert rows(reader, start, at) == 1
    two.send(B, 2)
    end = at
    while B not in queues(end):
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
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
        end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == 3


def test_a_stream_from_a_time_reads_from_it_in_the_queues_of_a_missing_broker(two: Two) -> None:
    two.send(B, 3)
    two.send(A, 1)
    reader = two.stream(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest")
    with two.missing():
        start = reader.initialOffset()
    end = start
    while B not in queues(end):
        end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == 4


def test_a_query_that_is_restarted_while_its_only_broker_is_missing_waits_for_it() -> None:
    with rmqpy.testing.Cluster() as cluster:
        assert cli.run(["topic", "create", "t", "--queues", "1", "-n", cluster.namesrv]) == 0
        two = Two(cluster.namesrv, lambda: contextmanager(lambda: iter([None]))())
        two.send(A, 3)
        at = Position({A: 1}).to_json()
        cluster.stop("broker-a")
        reader = two.stream()
        with pytest.warns(UserWarning, match=f"hold up {A}"):
            assert reader.latestOffset(at, ALL) is at
        cluster.start("broker-a")
        end = at
        while end is at:
            end = reader.latestOffset(at, ALL)
        assert rows(reader, at, end) == 2


def test_a_batch_says_which_broker_is_missing(silent: Two) -> None:
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
def test_a_queue_that_was_asked_for_by_name_needs_its_broker(away: Two, options: dict[str, str]) -> None:
    away.send(B, 3)
    with away.missing():
        for plan in (away.batch(**options).partitions, away.stream(**options).initialOffset):
            with pytest.raises(rmqpy.errors.ConnectError, match="broker broker-b is not registered"):
                plan()


def test_a_topic_that_a_query_is_no_longer_asked_to_read_is_named(away: Two) -> None:
    at = Position({A: 0, Queue("u", "broker-a", 0): 7}).to_json()
    with pytest.raises(rmqpy.errors.DataLoss, match="u/broker-a/0 is not among those to be read any more"):
        away.stream().latestOffset(at, ALL)
