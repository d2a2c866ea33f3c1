"""From a topic to a Delta table, exactly once: the number of the micro-batch is a transaction of the same commit.

    pip install deltalake
    python examples/spark/to_delta.py

Spark repeats a micro-batch that it did not record as finished. Delta's log has the number of the last one that was
written, so a repeated micro-batch changes nothing. Each micro-batch passes through the driver: bound it by
`maxOffsetsPerTrigger`. The query runs twice here, and the second run repeats the last micro-batch. Needs Spark 4.2.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from here import everything, forget_last_batch, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders-in-delta"
#: The name of the query in Delta's log. A query with a new checkpoint needs a new name: it counts from 0 again.
QUERY = "spark:orders"


def main(spark: "SparkSession", namesrv: str, folder: Path) -> int:
    """Store orders. Returns the number of rows in the table."""
    address = str(folder / "orders")

    def store(df: "DataFrame", batch_id: int) -> None:
        table = DeltaTable(address) if DeltaTable.is_deltatable(address) else None
        stored = None if table is None else table.transaction_version(QUERY)
        if stored is not None and stored >= batch_id:
            return
        # The commit is based on the version that was looked at: the second of two drivers is refused.
        commit = CommitProperties(app_transactions=[Transaction(QUERY, batch_id)], max_commit_retries=0)
        write_deltalake(
            address if table is None else table,
            df.toArrow(),
            mode="error" if table is None else "append",
            partition_by=["day"],
            commit_properties=commit,
        )

    def run() -> None:
        orders = (
            spark.readStream.format("rocketmq")
            .option("nameserver", namesrv)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load()
            .selectExpr(
                "queueId", "queueOffset", "tags", "body", "storeTimestamp", "date(storeTimestamp) as day"
            )
        )
        checkpoint = str(folder / "checkpoint")
        writer = orders.writeStream.foreachBatch(store).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    send(namesrv, TOPIC, [f"order {number}" for number in range(90)])
    run()
    forget_last_batch(folder / "checkpoint")
    run()
    table = DeltaTable(address)
    rows = table.to_pyarrow_table().num_rows
    print(f"{rows} orders in version {table.version()} of the table")
    return rows


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
