"""Planning times of Spark's driver with many queues: `make campaign NAME=spark-planning`.

Goal: planning ten thousand queues takes about a second, and a silent broker costs one timeout, regardless of its number
of queues. Method: half of the queues are on a broker in this process, half on a broker in its own process, which is
stopped for the last measurement. The driver's side of the connector runs without a session.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import rmqpy
import rmqpy.testing
from brokerprocess import broker_process
from pyspark_rocketmq.schema import default_schema
from pyspark_rocketmq.source import RocketMQSource

R = TypeVar("R")


def timed(what: str, work: Callable[[], R]) -> R:
    """Do it, and print how long it took and how much of that the driver was busy."""
    began, busy = time.perf_counter(), time.thread_time()
    result = work()
    print(
        f"{what:42} {time.perf_counter() - began:6.2f} s, {time.thread_time() - busy:5.2f} s busy", flush=True
    )
    return result


def main() -> None:
    """Print a line for each step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", type=int, default=10_000)
    queues = parser.parse_args().queues // 2
    warnings.simplefilter("ignore")
    with (
        tempfile.TemporaryDirectory() as folder,
        rmqpy.testing.Cluster() as cluster,
        broker_process(cluster.namesrv, Path(folder), "broker-b") as silent_broker,
    ):
        with rmqpy.Admin(cluster.namesrv) as admin:
            admin.create_topic("t", read_queues=queues, write_queues=queues)
        source = RocketMQSource({"nameserver": cluster.namesrv, "subscribe": "t"})
        schema = default_schema(with_properties=False)
        timed("batch: plan", source.reader(schema=schema).partitions)
        stream = source.streamReader(schema=schema)
        start = timed("stream: first offset", stream.initialOffset)
        end = timed("stream: first end", lambda: stream.next_offset(start, is_limited=False))
        timed("stream: look for more", lambda: stream.next_offset(end, is_limited=False))
        with silent_broker.silent():
            timed("the same while a broker is silent", lambda: stream.next_offset(end, is_limited=False))


if __name__ == "__main__":
    main()
