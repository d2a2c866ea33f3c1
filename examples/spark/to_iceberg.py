"""From a topic to an Iceberg table, exactly once: the number of the micro-batch is a property, set in the same commit.

    pip install 'pyiceberg[pyiceberg-core,sql-sqlite]'
    python examples/spark/to_iceberg.py

Spark repeats a micro-batch that it did not record as finished. The table has the number of the last one that was
written, so a repeated micro-batch changes nothing. Each micro-batch passes through the driver: bound it by
`maxOffsetsPerTrigger`. The query runs twice here, and the second run repeats the last micro-batch. Needs Spark 4.2.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from here import everything, forget_last_batch, send
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import HourTransform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders-in-iceberg"
TABLE = "shop.orders"
#: The property of the table. A query with a new checkpoint needs a new name: it counts from 0 again.
BATCH = "spark.orders.batch"


def main(spark: "SparkSession", namesrv: str, folder: Path) -> int:
    """Store orders. Returns the number of rows in the table."""
    catalog = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "warehouse")
    )
    catalog.create_namespace_if_not_exists("shop")

    def store(df: "DataFrame", batch_id: int) -> None:
        rows = df.toArrow()
        if not catalog.table_exists(TABLE):
            # pyiceberg repeats a commit that lost to another. Without retries, the second of two drivers is refused.
            made = catalog.create_table(TABLE, rows.schema, properties={"commit.retry.num-retries": "0"})
            with made.update_spec() as spec:
                spec.add_field("storeTimestamp", HourTransform(), "hour")
        table = catalog.load_table(TABLE)
        if int(table.properties.get(BATCH, -1)) >= batch_id:
            return
        with table.transaction() as commit:
            commit.append(rows)
            commit.set_properties({BATCH: str(batch_id)})

    def run() -> None:
        orders = (
            spark.readStream.format("rocketmq")
            .option("nameserver", namesrv)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load()
            .selectExpr("queueId", "queueOffset", "tags", "body", "storeTimestamp")
        )
        checkpoint = str(folder / "checkpoint")
        writer = orders.writeStream.foreachBatch(store).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    send(namesrv, TOPIC, [f"order {number}" for number in range(90)])
    run()
    forget_last_batch(folder / "checkpoint")
    run()
    table = catalog.load_table(TABLE)
    rows = table.scan().to_arrow().num_rows
    print(f"{rows} orders in {len(table.snapshots())} snapshots")
    catalog.close()
    return rows


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
