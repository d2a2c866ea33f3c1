"""Planning times of Spark's driver with many queues: `make campaign NAME=spark-planning QUEUES=100000`.

Goal: planning ten thousand queues takes about a second, a hundred thousand less than ten, and a silent broker costs
one timeout (here 20 s), regardless of its number of queues. Connections do not grow with queues. Method: half of the
queues are on a broker in this process, half on a broker in its own process, which is stopped for the last
measurement. The driver's side of the connector runs without a session.
"""

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import rmqpy
import rmqpy.testing
from brokerprocess import broker_process
from pyspark_rocketmq.schema import default_schema
from pyspark_rocketmq.source import RocketMQSource
from rmqpy.control.topics.table import QUEUES_MAX

R = TypeVar("R")
#: Replies with tens of thousands of queues take longer than the default on a busy machine.
TIMEOUT_MS = 20_000


def timed(what: str, work: Callable[[], R]) -> R:
    """Do it, and print how long it took and how much of that the driver was busy."""
    began, busy = time.perf_counter(), time.thread_time()
    result = work()
    print(
        f"{what:42} {time.perf_counter() - began:6.2f} s, {time.thread_time() - busy:5.2f} s busy", flush=True
    )
    return result


def connections() -> int:
    """Return the number of established connections that this process opened, with those of the broker in it."""
    own = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(os.readlink(each))
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    return sum(f"socket:[{fields[9]}]" in own for fields in map(str.split, lines) if fields[3] == "01")


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", type=int, default=10_000)
    queues = parser.parse_args().queues // 2
    topics = [f"t{at}" for at in range(-(-queues // QUEUES_MAX))]
    each = -(-queues // len(topics))
    warnings.simplefilter("ignore")
    with (
        tempfile.TemporaryDirectory() as folder,
        rmqpy.testing.Cluster() as cluster,
        broker_process(cluster.namesrv, Path(folder), "broker-b") as silent_broker,
    ):
        with rmqpy.Admin(cluster.namesrv) as admin:
            for topic in topics:
                admin.create_topic(topic, read_queues=each, write_queues=each)
        print(f"{2 * each * len(topics)} queues of {len(topics)} topics")
        source = RocketMQSource(
            {
                "nameserver": cluster.namesrv,
                "subscribe": ",".join(topics),
                "startingOffsets": "earliest",
                "requestTimeoutMs": str(TIMEOUT_MS),
            }
        )
        schema = default_schema(with_properties=False)
        timed("batch: plan", source.reader(schema=schema).partitions)
        stream = source.streamReader(schema=schema)
        start = timed("stream: first offset", stream.initialOffset)
        end = timed("stream: first end", lambda: stream.next_offset(start, is_limited=False))
        with rmqpy.Producer(cluster.namesrv) as producer:
            producer.send(topics[0], "new")
        more = timed("stream: the next end", lambda: stream.next_offset(end, is_limited=False))
        timed("stream: tasks", lambda: stream.partitions(end, more))
        timed("stream: an idle poll of half a second", lambda: stream.next_offset(more, is_limited=False))
        timed("stream: another", lambda: stream.next_offset(more, is_limited=False))
        print(f"{connections()} connections of this process")
        with silent_broker.silent():
            timed("the same while a broker is silent", lambda: stream.next_offset(end, is_limited=False))


if __name__ == "__main__":
    main()
