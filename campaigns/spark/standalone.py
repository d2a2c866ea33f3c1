"""The connector on a standalone Spark cluster: `make campaign NAME=spark-cluster`.

Goal: tasks run on executors in separate processes. Each executor keeps one connection to the broker for reading and
writing, and reconnects after a restart of the broker. A silent broker loses nothing. The two writes of a micro-batch
have distinct ids, which a repetition repeats. Method: the example's cluster and stream; /proc shows the connections;
messages of the second topic are counted.
"""

import importlib
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import rmqpy
import rmqpy.testing
from brokerprocess import broker_process

pytestmark = pytest.mark.timeout(600)

_ESTABLISHED = "01"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "examples" / "spark"), *sys.path])
    return importlib.import_module("standalone")


@dataclass(frozen=True)
class Worker:
    """A Python process that Spark runs tasks in."""

    pid: int
    executor: int
    connections: int


def connected(address: str) -> list[Worker]:
    """Spark's Python workers that are connected to a server."""
    port = int(address.rpartition(":")[2])
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {
        f"socket:[{fields[9]}]"
        for fields in lines
        if int(fields[2].rpartition(":")[2], 16) == port and fields[3] == _ESTABLISHED
    }
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                # One socket may have several descriptors.
                own = sockets & {str(link.readlink()) for link in (process / "fd").iterdir()}
                executor = parent(parent(int(process.name)))
                found.append(Worker(int(process.name), executor, len(own)))
        except OSError:
            continue
    return [worker for worker in found if worker.connections]


def parent(pid: int) -> int:
    """Return the parent of a worker, the daemon it was forked from, or of the daemon, the executor."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_executors_keep_one_connection_each_and_make_it_anew(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        rmqpy.testing.Cluster() as cluster,
        example.spark_cluster(tmp_path) as url,
        example.session(url) as spark,
    ):
        seen: list[list[Worker]] = []
        stop = cluster.stop

        def look_and_stop(name: str) -> None:
            seen.append(connected(cluster.address(name)))
            stop(name)

        monkeypatch.setattr(cluster, "stop", look_and_stop)
        assert example.main(spark, cluster, tmp_path) == 2000
        seen.append(connected(cluster.address("broker-a")))
    for workers in seen:
        assert {worker.connections for worker in workers} == {1}
        assert len({worker.executor for worker in workers}) == example.WORKERS
    assert {worker.executor for worker in seen[0]} == {worker.executor for worker in seen[1]}


def test_a_silent_broker_and_a_repeated_batch_of_two_writes_lose_nothing(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wait for a worker that starts slowly on a busy machine.
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", "--conf spark.python.authenticate.socketTimeout=300s pyspark-shell"
    )
    with ExitStack() as stack:
        cluster = stack.enter_context(rmqpy.testing.Cluster())
        admin = stack.enter_context(rmqpy.Admin(cluster.namesrv))
        admin.create_topic("target")
        broker_b = stack.enter_context(broker_process(cluster.namesrv, tmp_path, "broker-b"))
        admin.create_topic("source", read_queues=2, write_queues=2)
        spark = stack.enter_context(example.session(stack.enter_context(example.spark_cluster(tmp_path))))
        attempts: list[int] = []

        def put(df: Any, batch_id: int) -> None:
            for part in ("cast(string(body) AS int) % 2 = 0", "cast(string(body) AS int) % 2 = 1"):
                rows = df.where(part).select("body").write.format("rocketmq").mode("append")
                rows.options(nameserver=cluster.namesrv, topic="target").save()
            attempts.append(batch_id)
            if len(attempts) == 1:
                raise RuntimeError("after both writes")

        def run() -> None:
            given = {"nameserver": cluster.namesrv, "subscribe": "source", "requestTimeoutMs": "2000"}
            given |= {"startingOffsets": "earliest", "minPartitions": str(example.WORKERS)}
            writer = spark.readStream.format("rocketmq").options(**given).load().writeStream.foreachBatch(put)
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            assert query.trigger(availableNow=True).start().awaitTermination(300)

        def arrived() -> tuple[int, int, int]:
            """Messages, message ids, and different bodies of the second topic."""
            rows = spark.read.format("rocketmq").option("nameserver", cluster.namesrv).load("target")
            rows = rows.select("msgId", "body").collect()
            return len(rows), len({row.msgId for row in rows}), len({bytes(row.body) for row in rows})

        with rmqpy.Producer(cluster.namesrv) as producer:
            for number in range(200):
                producer.send("source", str(number), queue=source_queue(number, "broker-a", "broker-b"))
            with pytest.raises(StreamingQueryException, match="after both writes"):
                run()
            run()
            # The batch was sent twice with the same ids.
            assert arrived() == (400, 200, 200)
            for number in range(200, 300):
                producer.send("source", str(number), queue=source_queue(number, "broker-b"))
            for number in range(300, 400):
                producer.send("source", str(number), queue=source_queue(number, "broker-a"))
        with broker_b.silent():
            run()
            assert arrived() == (500, 300, 300)
        run()
        assert arrived() == (600, 400, 400)


def source_queue(number: int, *brokers: str) -> rmqpy.MessageQueue:
    return rmqpy.MessageQueue("source", brokers[number % len(brokers)], number % 4 // 2)
