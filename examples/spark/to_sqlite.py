"""Running totals in a database, exactly once: `foreachBatch` stores the number of the batch in the same transaction.

    python examples/spark/to_sqlite.py

Spark repeats a batch that it did not record as finished. The table of batches has the stored ones, so a repeated batch
changes nothing. The query runs twice here, and the second run repeats the last batch. Needs Spark 4.2.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from here import everything, forget_last_batch, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "clicks"


def main(spark: "SparkSession", namesrv: str, folder: Path) -> dict[str, int]:
    """Count clicks by page. Returns the counts in the database."""
    database = str(folder / "clicks.db")
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("CREATE TABLE clicks (page TEXT PRIMARY KEY, count INTEGER)")
        db.execute("CREATE TABLE batches (number INTEGER PRIMARY KEY)")

    def store(df: "DataFrame", batch_id: int) -> None:
        counts = [(row.page, row["count"]) for row in df.groupBy("page").count().collect()]
        with closing(sqlite3.connect(database)) as db, db:
            if db.execute("SELECT 1 FROM batches WHERE number = ?", [batch_id]).fetchone():
                return
            db.execute("INSERT INTO batches VALUES (?)", [batch_id])
            db.executemany(
                "INSERT INTO clicks VALUES (?, ?) ON CONFLICT (page) DO UPDATE SET count = count + excluded.count",
                counts,
            )

    def run() -> None:
        clicks = (
            spark.readStream.format("rocketmq")
            .option("nameserver", namesrv)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .schema("body string")
            .load()
            .withColumnRenamed("body", "page")
        )
        checkpoint = str(folder / "checkpoint")
        writer = clicks.writeStream.foreachBatch(store).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    send(namesrv, TOPIC, ["/home", "/help", "/home"] * 30)
    run()
    forget_last_batch(folder / "checkpoint")
    run()
    with closing(sqlite3.connect(database)) as db:
        counts = dict(db.execute("SELECT page, count FROM clicks ORDER BY page").fetchall())
    print(counts)
    return counts


if __name__ == "__main__":
    with TemporaryDirectory() as scratch, everything() as (session, address):
        main(session, address, Path(scratch))
