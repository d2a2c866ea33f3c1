"""The environment of the examples in this folder: a broker and a Spark session on this machine."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import rmqpy
from rmqpy.server import Standalone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def everything(http_port: int = -1) -> "Iterator[tuple[SparkSession, str]]":
    """Yield a session and the address of a name server, and stop both. `http_port` is the console's, or -1."""
    # Workers are separate processes. They must run this interpreter, on this machine.
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
    """Send texts, with many requests in flight, and wait until all are stored."""
    with rmqpy.Producer(namesrv) as producer:
        in_flight = [
            producer.submit(topic, body, tag=tag)
            for body, tag in zip(bodies, tags or [None] * len(bodies), strict=True)
        ]
        for future in in_flight:
            future.result()
        # Name servers learn of a new topic a moment after its first message.
        until_known(namesrv, topic)


def until_known(namesrv: str, topic: str) -> None:
    """Wait until name servers know the queues of a topic, at most five seconds."""
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


def forget_last_batch(checkpoint: Path) -> None:
    """Simulate a crash before Spark recorded its last micro-batch as finished: the next run repeats it."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
