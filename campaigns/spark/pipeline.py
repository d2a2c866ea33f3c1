"""Processes of the Spark kill campaign, started by `kill.py`: `pipeline.py broker|feed|drive ...`.

Each ends with its standard input, so none outlives a campaign that dies. The driver runs two queries on one topic on a
cluster of two executors: a copy into a second topic, and count and sum by windows, written to a file.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rmqpy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE, TARGET = "kill-source", "kill-target"
WINDOW_S = 5
#: Tasks of the copy: both executors send.
TASKS = 2


def broker(folder: str) -> None:
    """Run a name server and a broker; print their addresses."""
    from rmqpy.server import Standalone

    with Standalone(folder, namesrv_port=0, broker_port=0) as server:
        print(server.namesrv, flush=True)
        sys.stdin.read()


def feed(namesrv: str) -> None:
    """Send numbers, some hundred a second, until standard input ends."""
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    with rmqpy.Producer(namesrv, send_timeout=60) as producer:
        number = 0
        while not is_over.wait(0.02):
            for future in [producer.submit(SOURCE, str(number + index)) for index in range(16)]:
                future.result()
            number += 16


def drive(namesrv: str, folder: str) -> None:
    """Both queries, until killed. A line for each micro-batch of the copy."""
    end_with_standard_input()
    spark = _session()
    copied = _copy(spark, namesrv, folder)
    counted = _count(spark, namesrv, folder)
    shown = -1
    while copied.isActive and counted.isActive:
        progress = copied.lastProgress
        if progress is not None and progress.batchId != shown:
            shown = progress.batchId
            print(shown, flush=True)
        time.sleep(0.05)
    print("a query has ended", copied.exception(), counted.exception(), file=sys.stderr, flush=True)


def end_with_standard_input() -> None:
    """End this process when its standard input ends."""

    def wait() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _session() -> "SparkSession":
    os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"] = sys.executable, "127.0.0.1"
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.executor.memory", "600m")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        # Killed executors must not end a query, however many of them one task meets.
        .config("spark.task.maxFailures", "20")
        .config("spark.deploy.maxExecutorRetries", "-1")
        # Neither must a busy machine.
        .config("spark.python.authenticate.socketTimeout", "300s")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _stream(spark: "SparkSession", namesrv: str, **options: str) -> "DataFrame":
    patient = {"requestTimeoutMs": "10000", "fetchOffset.numRetries": "10", "pullTimeoutMs": "30000"}
    given = {"nameserver": namesrv, "subscribe": SOURCE, "startingOffsets": "earliest"} | patient | options
    return spark.readStream.format("rocketmq").options(**given).load()


def _copy(spark: "SparkSession", namesrv: str, folder: str) -> Any:
    # Small requests, one at a time: a broker that is paused often gets a batch in many pieces.
    sink = {
        "sendTimeoutMs": "60000",
        "requestTimeoutMs": "10000",
        "sendBatchMessages": "2",
        "maxInFlight": "1",
    }
    return (
        _stream(spark, namesrv, minPartitions=str(TASKS))
        .select("body")
        .writeStream.format("rocketmq")
        .options(nameserver=namesrv, topic=TARGET, sparkProperties="true", **sink)
        .option("checkpointLocation", f"{folder}/copy")
        .start()
    )


def _count(spark: "SparkSession", namesrv: str, folder: str) -> Any:
    from pyspark.sql import functions as f

    def keep(df: "DataFrame", batch_id: int) -> None:
        rows = df.selectExpr("unix_seconds(window.start) AS start", "rows", "total").collect()
        new = Path(folder, "windows.new")
        new.write_text(json.dumps({row.start: [row.rows, row.total] for row in rows}))
        new.rename(Path(folder, "windows.json"))

    windows = _stream(spark, namesrv).groupBy(f.window("storeTimestamp", f"{WINDOW_S} seconds"))
    total = f.sum(f.col("body").cast("string").cast("bigint"))
    return (
        windows.agg(f.count("*").alias("rows"), total.alias("total"))
        .writeStream.outputMode("complete")
        .foreachBatch(keep)
        .option("checkpointLocation", f"{folder}/count")
        .start()
    )


if __name__ == "__main__":
    {"broker": broker, "feed": feed, "drive": drive}[sys.argv[1]](*sys.argv[2:])
