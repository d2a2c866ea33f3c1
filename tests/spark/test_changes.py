"""Running queries on a changing cluster, one change per test."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import rmqpy
import rmqpy.testing
from pyspark_rocketmq.offsets import Position, Queue
from rmqpy import cli
from waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

TOPIC = "changing"


@pytest.fixture
def cluster() -> Iterator[rmqpy.testing.Cluster]:
    """A name server and a broker with a topic of two queues."""
    with rmqpy.testing.Cluster() as cluster:
        make(cluster, 2)
        yield cluster


def make(cluster: rmqpy.testing.Cluster, queues: int) -> None:
    assert cli.run(["topic", "create", TOPIC, "--queues", str(queues), "-n", cluster.namesrv]) == 0


def send(cluster: rmqpy.testing.Cluster, *numbers: int, queue_id: int = 0, width: int = 1) -> None:
    queue = rmqpy.MessageQueue(TOPIC, "broker-a", queue_id)

    def sent(number: int) -> bool:
        try:
            return producer.send(TOPIC, f"{number:{width}}", queue=queue).ok
        except rmqpy.RocketMQError:
            # A broker that has just returned, or a new queue, becomes known with a delay.
            return False

    config = rmqpy.ClientConfig(namesrv=cluster.namesrv, route_refresh=0.1)
    with rmqpy.Producer(config, compress_above=None) as producer:
        for number in numbers:
            until(lambda number=number: sent(number))


class Running:
    """A query, and the rows it has received."""

    def __init__(self, spark: "SparkSession", namesrv: str, folder: Path, **options: str) -> None:
        self.numbers: list[int] = []
        self._may_go_on = threading.Event()
        self._may_go_on.set()
        stream = spark.readStream.format("rocketmq").options(
            nameserver=namesrv, subscribe=TOPIC, startingOffsets="earliest", **options
        )
        writer = stream.load().writeStream.foreachBatch(self._keep)
        self.query: Any = writer.option("checkpointLocation", str(folder)).start()

    def _keep(self, df: "DataFrame", batch_id: int) -> None:
        self.numbers += [int(bytes(row.body)) for row in df.select("body").collect()]
        assert self._may_go_on.wait(120)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """No batch ends meanwhile."""
        self._may_go_on.clear()
        yield
        self._may_go_on.set()

    @property
    def end(self) -> Mapping[Queue, int]:
        """End of its last batch."""
        progress = self.query.lastProgress
        told = None if progress is None else json.loads(progress.json)["sources"][0]["endOffset"]
        return {} if told is None else Position.of_json(told).queues

    def wait_for(self, *numbers: int) -> None:
        """Until it has got these, each once."""
        until(lambda: len(self.numbers) >= len(numbers) or not self.query.isActive)
        assert self.query.exception() is None
        assert sorted(self.numbers) == sorted(numbers)

    def fails(self, complaint: str) -> None:
        """Until it has ended with these words."""
        with pytest.raises(StreamingQueryException, match=complaint):
            self.query.awaitTermination(60)


Start = Callable[..., Running]


@pytest.fixture
def start(spark: "SparkSession", cluster: rmqpy.testing.Cluster, tmp_path: Path) -> Iterator[Start]:
    """`start(option=value, ...)`: a query over the topic, stopped when the test ends."""
    running: list[Running] = []

    def start(**options: str) -> Running:
        running.append(Running(spark, cluster.namesrv, tmp_path, **options))
        return running[-1]

    yield start
    for each in running:
        each.query.stop()


def test_a_query_waits_for_its_broker(cluster: rmqpy.testing.Cluster, start: Start) -> None:
    send(cluster, 0, 1)
    query = start()
    query.wait_for(0, 1)
    cluster.stop("broker-a")
    was_looked_for(cluster.address("broker-a"))
    cluster.start("broker-a")
    send(cluster, 2, 3)
    query.wait_for(0, 1, 2, 3)


def was_looked_for(address: str) -> None:
    """Stand in for an unreachable broker, until a client connects."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listener:
        listener.settimeout(60)
        listener.accept()[0].close()


def test_queues_that_are_added_join_a_query(cluster: rmqpy.testing.Cluster, start: Start) -> None:
    send(cluster, 0, queue_id=0)
    send(cluster, 1, queue_id=1)
    query = start()
    query.wait_for(0, 1)
    with rmqpy.Admin(cluster.namesrv) as admin:
        admin.update_topic(TOPIC, read_queues=4, write_queues=4)
    for queue_id in range(4):
        send(cluster, 2 + queue_id, queue_id=queue_id)
    query.wait_for(0, 1, 2, 3, 4, 5)


def delete(cluster: rmqpy.testing.Cluster) -> None:
    assert cli.run(["topic", "delete", TOPIC, "--yes", "-n", cluster.namesrv]) == 0


def test_a_topic_that_is_deleted_ends_a_query(cluster: rmqpy.testing.Cluster, start: Start) -> None:
    send(cluster, 0, 1, 2)
    query = start()
    query.wait_for(0, 1, 2)
    delete(cluster)
    query.fails(f"queue {TOPIC}/broker-a/0 no longer exists; the query was at 3")


def test_recreated_topic_is_read_from_its_beginning(cluster: rmqpy.testing.Cluster, start: Start) -> None:
    send(cluster, 0, 1, 2)
    query = start(failOnDataLoss="false")
    query.wait_for(0, 1, 2)
    delete(cluster)
    until(lambda: Queue(TOPIC, "broker-a", 0) not in query.end)
    make(cluster, 2)
    send(cluster, 3, 4)
    query.wait_for(0, 1, 2, 3, 4)


@pytest.mark.parametrize("is_fatal", [True, False])
def test_retention_that_overtakes_a_query_is_reported(
    is_fatal: bool, spark: "SparkSession", tmp_path: Path
) -> None:
    with rmqpy.testing.Cluster(mappedFileSizeCommitLog=1 << 20) as cluster:
        make(cluster, 1)
        # Each fills most of a file of the log.
        send(cluster, *range(5), width=700_000)
        query = Running(
            spark, cluster.namesrv, tmp_path, maxOffsetsPerTrigger="1", failOnDataLoss=str(is_fatal)
        )
        try:
            # The first batch is taken, the next is not planned yet.
            with query.held_up():
                until(lambda: query.numbers == [0])
                expire(cluster, 3)
            if is_fatal:
                query.fails(f"queue {TOPIC}/broker-a/0: requested 1 to 4, but the broker holds 3 to 5")
            else:
                query.wait_for(0, 3, 4)
        finally:
            query.query.stop()


def expire(cluster: rmqpy.testing.Cluster, count: int) -> None:
    """Delete the first files of the log."""
    cluster.stop("broker-a")
    for file in sorted((cluster.folder / "broker-a" / "commitlog").iterdir())[:count]:
        file.unlink()
    cluster.start("broker-a")
