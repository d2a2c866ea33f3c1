"""The driver of the campaign on state and tables, started by `state.py`: `-m campaigns.spark.stateful drive ADDRESS
FOLDER`.

Three queries on one topic: running totals by key in Spark's state, which go to a second topic, and copies in Delta
and in Iceberg. The process ends with its standard input, so it does not outlive a campaign that dies.
"""

import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from campaigns.spark.pipeline import SOURCE, TARGET, end_with_standard_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = 8
#: Names of the copies in the tables' logs: one query each, with one checkpoint.
DELTA, ICEBERG = "campaign:delta", "campaign.batch"
#: Of Iceberg. A database may have several catalogs, told apart by their names.
CATALOG, TABLE = "campaign", "campaign.copy"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Totals(StatefulProcessor):
    """The number of messages of a key, and the sum of their numbers."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._totals = handle.getValueState("totals", "count bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Add the numbers of a micro-batch, and emit the totals after it."""
        count, total = self._totals.get() if self._totals.exists() else (0, 0)
        for row in rows:
            count, total = count + 1, total + row.number
        self._totals.update((count, total))
        yield Row(bucket=key[0], count=count, total=total)

    def close(self) -> None:
        """Nothing to release."""


def drive(namesrv: str, folder: str) -> None:
    """All queries, until killed. A line for each micro-batch of the first."""
    end_with_standard_input()
    spark = _session()
    queries: list[Any] = []
    for start in (_totals, _delta, _iceberg):
        queries.append(start(spark, namesrv, folder))
        # One after the other: on a busy machine, Spark gives up workers that start too slowly.
        while queries[-1].isActive and queries[-1].lastProgress is None:
            time.sleep(0.05)
    shown = -1
    while all(query.isActive for query in queries):
        batch = queries[0].lastProgress.batchId
        if batch != shown:
            shown = batch
            print(shown, flush=True)
        time.sleep(0.05)
    print("a query has ended", *(query.exception() for query in queries), file=sys.stderr, flush=True)


def _session() -> "SparkSession":
    os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"] = sys.executable, "127.0.0.1"
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.python.authenticate.socketTimeout", "300s")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _stream(spark: "SparkSession", namesrv: str) -> "DataFrame":
    patient = {"requestTimeoutMs": "10000", "fetchOffset.numRetries": "10", "pullTimeoutMs": "30000"}
    given = {"nameserver": namesrv, "subscribe": SOURCE, "startingOffsets": "earliest"} | patient
    return spark.readStream.format("rocketmq").options(**given).load()


def _totals(spark: "SparkSession", namesrv: str, folder: str) -> Any:
    numbers = _stream(spark, namesrv).selectExpr("cast(cast(body as string) as bigint) as number")
    totals = (
        numbers.selectExpr(f"number % {KEYS} as bucket", "number")
        .groupBy("bucket")
        .transformWithState(Totals(), "bucket bigint, count bigint, total bigint", "append", "none")
    )
    return (
        totals.selectExpr("bucket", "count", "concat_ws(' ', bucket, count, total) as body")
        .writeStream.format("rocketmq")
        # After a shuffle, columns identify a row.
        .options(nameserver=namesrv, topic=TARGET, idempotencyKey="bucket,count", ignoreExtraColumns="true")
        .options(sendTimeoutMs="60000", requestTimeoutMs="10000")
        .option("checkpointLocation", f"{folder}/totals")
        .outputMode("append")
        .start()
    )


def _delta(spark: "SparkSession", namesrv: str, folder: str) -> Any:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    address = f"{folder}/delta"

    def store(df: "DataFrame", batch_id: int) -> None:
        table = DeltaTable(address) if DeltaTable.is_deltatable(address) else None
        stored = None if table is None else table.transaction_version(DELTA)
        if stored is not None and stored >= batch_id:
            return
        commit = CommitProperties(app_transactions=[Transaction(DELTA, batch_id)], max_commit_retries=0)
        mode: Literal["error", "append"] = "error" if table is None else "append"
        write_deltalake(
            address if table is None else table, df.toArrow(), mode=mode, commit_properties=commit
        )

    return _copied(spark, namesrv, f"{folder}/copy-delta", store)


def _iceberg(spark: "SparkSession", namesrv: str, folder: str) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(
        CATALOG, type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/iceberg"
    )
    catalog.create_namespace_if_not_exists(TABLE.partition(".")[0])

    def store(df: "DataFrame", batch_id: int) -> None:
        rows = df.toArrow()
        if not catalog.table_exists(TABLE):
            catalog.create_table(TABLE, rows.schema, properties={"commit.retry.num-retries": "0"})
        table = catalog.load_table(TABLE)
        if int(table.properties.get(ICEBERG, -1)) >= batch_id:
            return
        with table.transaction() as commit:
            commit.append(rows)
            commit.set_properties({ICEBERG: str(batch_id)})

    return _copied(spark, namesrv, f"{folder}/copy-iceberg", store)


def _copied(spark: "SparkSession", namesrv: str, checkpoint: str, store: Any) -> Any:
    rows = _stream(spark, namesrv).selectExpr("cast(body as string) as body", "queueId", "queueOffset")
    return rows.writeStream.foreachBatch(store).option("checkpointLocation", checkpoint).start()


if __name__ == "__main__":
    {"drive": drive}[sys.argv[1]](*sys.argv[2:])
