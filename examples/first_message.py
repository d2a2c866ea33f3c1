"""From a file to a DataFrame: name server and broker, producer, consumer and Spark, all on this machine.

    python examples/first_message.py examples/time-zones.tsv

Each line of the file becomes a message; lines starting with # are comments. The sample is the table of the world's
time zones (public domain): country codes, coordinates, name, remarks. The part of the name before the slash becomes
the message's tag, the whole name its key.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import rmqpy
from rmqpy.server import Standalone

TOPIC = "time-zones"


def send(namesrv: str, lines: list[str]) -> None:
    """Send every line, with many in flight, and wait until all are stored."""
    began = time.perf_counter()
    with rmqpy.Producer(namesrv) as producer:
        under_way = []
        for line in lines:
            zone = line.split("\t")[2]
            under_way.append(producer.submit(TOPIC, line, tag=zone.split("/")[0], keys=zone))
        results = [each.result() for each in under_way]
    took = time.perf_counter() - began
    print(f"sent      {len(results)} messages in {took:.3f} s; the last one: {results[-1].message_id}")


def queues_of(consumer: rmqpy.PullConsumer) -> list[rmqpy.MessageQueue]:
    """Return the topic's queues; name servers learn of a new topic shortly after its first message was stored."""
    deadline = time.monotonic() + 5
    while True:
        try:
            return consumer.queues(TOPIC)
        except rmqpy.errors.TopicNotFound:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def consume(namesrv: str, count: int) -> None:
    """Read the topic from its beginning until `count` messages have arrived."""
    with rmqpy.PullConsumer("first-message", namesrv, start_from="earliest") as consumer:
        consumer.assign(queues_of(consumer))
        received: list[rmqpy.ReceivedMessage] = []
        deadline = time.monotonic() + 30
        while len(received) < count and time.monotonic() < deadline:
            received += consumer.poll(timeout=1.0)
    first = min(received, key=lambda message: (message.queue, message.queue_offset))
    print(f"consumed  {len(received)} messages; for instance {first.keys[0]}: {first.text()!r}")
    if len(received) != count:
        sys.exit(f"expected {count} messages")


def show_in_spark(namesrv: str) -> None:
    """Read the topic as a DataFrame, and print some rows and their schema."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

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
    df = spark.read.format("rocketmq").option("nameserver", namesrv).option("subscribe", TOPIC).load()
    df.selectExpr(
        "queueId", "queueOffset", "tags", "keys", "cast(body as string) as body", "storeTimestamp"
    ).orderBy("keys").show(10, truncate=48)
    df.groupBy("tags").count().orderBy("count", ascending=False).show()
    print(f"{df.count()} rows")
    spark.stop()


def main(path: str) -> None:
    """Run all steps once, on free ports and in a temporary folder."""
    lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    with (
        tempfile.TemporaryDirectory(prefix="rmqpy-") as folder,
        Standalone(folder, namesrv_port=0, broker_port=0) as server,
    ):
        print(f"serving   name server {server.namesrv}, broker {server.broker}")
        send(server.namesrv, lines)
        consume(server.namesrv, len(lines))
        show_in_spark(server.namesrv)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).with_name("time-zones.tsv")))
