"""Spark sides: a topic of ours, a topic of Kafka's, and generated rows, as Spark reads them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

import rmqpy
from benchmarks.peers import Kafka
from benchmarks.servers import Rmqpy
from rmqpy.load.machine import listener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = 8


class Side(ABC):
    """A source, and perhaps a sink."""

    name: str
    #: The broker's process id.
    pid: int | None = None

    @abstractmethod
    def read(self, topic: str) -> "DataFrame":
        """Queue, offset and body of every message of a topic."""

    def write(self, rows: "DataFrame", topic: str) -> None:
        """Send rows to an existing topic."""
        raise NotImplementedError

    def make(self, topic: str) -> None:
        """Create a topic of eight queues."""
        raise NotImplementedError

    @abstractmethod
    def stored(self, topic: str) -> int:
        """Messages of a topic, as the broker counts them."""


class Ours(Side):
    """rmqpy's broker and the connector. Entering it creates an empty store; leaving it removes the store."""

    name = "rocketmq"

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark = spark
        self._servers = Rmqpy(folder)

    def __enter__(self) -> Self:
        try:
            self._servers.start()
        except BaseException:
            self._servers.stop()
            raise
        self.pid = self._servers.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._servers.stop()

    @property
    def options(self) -> Mapping[str, str]:
        """Options of the connector for the cluster."""
        return {"nameserver": self._servers.namesrv}

    def read(self, topic: str) -> "DataFrame":
        reader = self._spark.read.format("rocketmq").options(**self.options).option("subscribe", topic)
        return reader.schema("queueId int, queueOffset bigint, body binary").load()

    def write(self, rows: "DataFrame", topic: str) -> None:
        rows.select("body").write.format("rocketmq").mode("append").options(**self.options).save(topic)

    def make(self, topic: str) -> None:
        with rmqpy.Admin(self._servers.namesrv) as admin:
            admin.create_topic(topic, read_queues=QUEUES, write_queues=QUEUES)

    def stored(self, topic: str) -> int:
        with rmqpy.Catalog(self._servers.namesrv) as catalog:
            return sum(catalog.ends(catalog.queues(topic)).values())


class _Broker(Kafka):
    partitions = QUEUES


class Kafkas(Side):
    """Kafka's broker and Spark's Kafka connector, likewise."""

    name = "kafka"

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark = spark
        self._broker = _Broker(folder)

    def __enter__(self) -> Self:
        self._broker.__enter__()
        self.pid = listener(self._broker.address)
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.__exit__()

    def read(self, topic: str) -> "DataFrame":
        reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._broker.address)
        loaded = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        return loaded.selectExpr("partition AS queueId", "offset AS queueOffset", "value AS body")

    def write(self, rows: "DataFrame", topic: str) -> None:
        writer = rows.selectExpr("body AS value").write.format("kafka")
        writer.option("kafka.bootstrap.servers", self._broker.address).option("topic", topic).save()

    def make(self, topic: str) -> None:
        # The first message creates a topic.
        self.write(self._spark.createDataFrame([(b"x",)], "body binary"), topic)

    def stored(self, topic: str) -> int:
        return self.read(topic).count()


class Generated(Side):
    """Only Spark: the same batches without a broker."""

    name = "generator"

    def __init__(self, spark: "SparkSession", messages: int, size: int) -> None:
        self._spark, self._messages, self._size = spark, messages, size

    def read(self, topic: str) -> "DataFrame":
        options = {"messages": self._messages, "bytes": self._size, "queues": QUEUES}
        return self._spark.read.format("generator").options(**options).load()

    def stored(self, topic: str) -> int:
        return self._messages
