"""A Spark cluster of two workers: copies a topic as a stream while its broker restarts.

    python examples/spark/standalone.py

Everything runs on this machine. The same commands start a master and workers on several machines. The environment of
the executors needs PySpark, `rmqpy` and `pyspark-rocketmq`.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyspark
from here import send

import rmqpy
import rmqpy.testing
from rmqpy import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, TARGET = "readings", "readings-copy"
WORKERS = 2
STARTS_WITHIN_S = 120.0


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Start a master and workers of one core each. Yields the address of the master."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
    with ExitStack() as stack:
        start(stack, folder, "master.Master", *here, "--port", str(port))
        until_listening(port)
        for _ in range(WORKERS):
            start(stack, folder, "worker.Worker", *here, *size, url)
        yield url


def start(stack: ExitStack, folder: Path, name: str, *arguments: str) -> None:
    """Start a process of Spark, and end it with the stack."""
    home = pyspark.__path__[0]
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with (folder / "cluster.log").open("ab") as log:
        process = subprocess.Popen(command, env=os.environ | {"SPARK_HOME": home}, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def until_listening(port: int) -> None:
    """Wait until a server listens at this port."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no server listens at {port}")
        time.sleep(0.05)


@contextmanager
def session(url: str) -> "Iterator[SparkSession]":
    """Yield a session of the cluster, once all executors are registered."""
    # Executors run this interpreter. Other machines need it at the same path.
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(url)
        .config("spark.executor.memory", "512m")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", f"{STARTS_WITHIN_S:.0f}s")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def main(spark: "SparkSession", cluster: rmqpy.testing.Cluster, folder: Path) -> int:
    """Copy a topic while its broker restarts. Returns the number of distinct messages in the copy."""
    for topic in (SOURCE, TARGET):
        cli.run(["topic", "create", topic, "--queues", "4", "-n", cluster.namesrv])
    stream = spark.readStream.format("rocketmq").option("nameserver", cluster.namesrv)
    query = (
        stream.option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        # At least one task for each executor.
        .option("minPartitions", str(WORKERS))
        .load()
        .select("body")
        .writeStream.format("rocketmq")
        .option("nameserver", cluster.namesrv)
        .option("topic", TARGET)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    send(cluster.namesrv, SOURCE, [str(number) for number in range(1000)])
    query.processAllAvailable()
    cluster.stop("broker-a")
    cluster.start("broker-a")
    send(cluster.namesrv, SOURCE, [str(number) for number in range(1000, 2000)])
    query.processAllAvailable()
    query.stop()
    arrived = spark.read.format("rocketmq").option("nameserver", cluster.namesrv).load(TARGET)
    count = arrived.dropDuplicates(["msgId"]).count()
    print(f"{count} messages arrived, before and after the restart of their broker")
    return count


if __name__ == "__main__":
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as scratch,
        rmqpy.testing.Cluster() as servers,
        spark_cluster(Path(scratch)) as address,
        session(address) as spark_session,
    ):
        main(spark_session, servers, Path(scratch))
