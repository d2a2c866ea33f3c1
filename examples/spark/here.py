"""Environment of the examples in this folder: a broker and a Spark session on this machine."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import rmqpy
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def everything(http_port: int = -1) -> "Iterator[tuple[SparkSession, str]]":
    """A session and the address of a name server; both gone afterwards. The console is at `http_port`, unless it
    is -1."""
    # Spark's workers are processes of their own: they must run this interpreter, and stay on this machine.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    with (
        tempfile.TemporaryDirectory(prefix="rmqpy-") as folder,
        Standalone(folder, namesrv_port=0, broker_port=0, http_port=http_port) as server,
    ):
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark, server.namesrv
        finally:
            spark.stop()


def send(namesrv: str, topic: str, bodies: list[str], tags: list[str] | None = None) -> None:
    """Send texts, many on their way at a time, and wait until all are stored."""
    with rmqpy.Producer(namesrv) as producer:
        under_way = [
            producer.submit(topic, body, tag=tag)
            for body, tag in zip(bodies, tags or [None] * len(bodies), strict=True)
        ]
        for future in under_way:
            future.result()
        # A topic that its first message made takes a moment to be known to name servers.
        until_known(namesrv, topic)


def until_known(namesrv: str, topic: str) -> None:
    """Return when name servers can say where a topic's queues are; give up after five seconds."""
    import time

    deadline = time.monotonic() + 5
    with rmqpy.Catalog(namesrv) as catalog:
        while True:
            try:
                catalog.queues(topic)
                return
            except rmqpy.errors.TopicNotFound:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
