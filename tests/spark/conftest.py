"""One broker and one Spark session for all tests of the connector; a fresh topic for each."""

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rmqpy
import rmqpy.testing
from pyspark_rocketmq.jvm import JAR
from rmqpy import cli
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def server() -> Iterator[Standalone]:
    """A name server and a broker."""
    with rmqpy.testing.broker() as server:
        yield server


@pytest.fixture(scope="session")
def producer(server: Standalone) -> Iterator[rmqpy.Producer]:
    """A producer at that broker."""
    with rmqpy.Producer(server.namesrv) as producer:
        yield producer


_numbers = itertools.count()


@pytest.fixture
def topic(server: Standalone) -> str:
    """A topic of four queues that no other test uses."""
    return made_topic(server)


@pytest.fixture
def other_topic(server: Standalone) -> str:
    """Another one."""
    return made_topic(server)


@pytest.fixture
def third_topic(server: Standalone) -> str:
    """And a third."""
    return made_topic(server)


def made_topic(server: Standalone) -> str:
    """A new topic."""
    name = f"spark-{next(_numbers)}"
    assert cli.run(["topic", "create", name, "--queues", "4", "-n", server.namesrv]) == 0
    return name


@pytest.fixture
def received(server: Standalone, topic: str) -> Callable[..., list[rmqpy.ReceivedMessage]]:
    """`received()`: every message of the test's topic, queue by queue."""

    def received(name: str = topic) -> list[rmqpy.ReceivedMessage]:
        found: list[rmqpy.ReceivedMessage] = []
        with rmqpy.PullConsumer("sink-tests", server.namesrv, auto_commit=False) as consumer:
            queues = consumer.queues(name)
            count = sum(end for _, end in map(consumer.offsets, queues))
            consumer.assign(queues)
            for queue in queues:
                consumer.seek(queue, "begin")
            while len(found) < count:
                found += consumer.poll(timeout=30)
        return sorted(found, key=lambda message: (message.queue, message.queue_offset))

    return received


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A local session that finds the format by itself, as a user's does."""
    if (
        shutil.which("java") is None
        and not Path(os.environ.get("JAVA_HOME", "/nonexistent"), "bin", "java").exists()
    ):
        pytest.skip("no Java runtime: apt-get install default-jdk-headless")
    # Spark's workers are separate processes: they must run this interpreter, and stay on this machine.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("rmqpy tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        # A worker that starts slowly on a busy machine is waited for.
        .config("spark.python.authenticate.socketTimeout", "300s")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        # Spark's own list of sinks for Real-time Mode has no other connectors.
        .config("spark.sql.streaming.realTimeMode.allowlistCheck", "false")
        .config("spark.jars", str(JAR) if JAR.is_file() else "")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def run_available() -> Callable[[Any], Any]:
    """`run_available(writer)`: a query over the messages that exist now, on any version of Spark."""
    from pyspark_rocketmq.features import ADMISSION

    def run_available(writer: Any) -> Any:
        if ADMISSION.is_offered:
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(240)
            return query
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return query

    return run_available


@pytest.fixture
def load(spark: "SparkSession", server: Standalone, topic: str) -> "Callable[..., DataFrame]":
    """`load(option=value, ...)`: the test's topic as a DataFrame."""

    def load(schema: str | None = None, **options: object) -> "DataFrame":
        reader = spark.read.format("rocketmq").options(
            **{"nameserver": server.namesrv, "subscribe": topic, **options}
        )
        return (reader.schema(schema) if schema else reader).load()

    return load
