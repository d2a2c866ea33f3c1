"""Write a topic to Parquet, and plot it.

    python examples/spark/to_parquet.py [FOLDER]

The results are in FOLDER, by default in a new temporary folder, whose path is printed.

Each line of a table of time zones is a message, tagged with its continent. The program reads the needed columns once,
writes them as Parquet by continent, and counts the rows from there. The plot is an SVG file, made without a library.
"""

import sys
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from here import everything, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "time-zones"
SAMPLE = Path(__file__).parents[1] / "time-zones.tsv"


def bars(counts: dict[str, int], title: str) -> str:
    """Draw horizontal bars, longest first."""
    longest, rows = max(counts.values()), []
    for index, (name, count) in enumerate(sorted(counts.items(), key=lambda item: -item[1])):
        top, width = 44 + 26 * index, round(380 * count / longest)
        rows.append(
            f'<text x="100" y="{top + 15}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="108" y="{top}" width="{width}" height="20" fill="#3b6ea5"/>'
            f'<text x="{114 + width}" y="{top + 15}">{count}</text>'
        )
    height = 60 + 26 * len(counts)
    style = 'font-family="sans-serif" font-size="13"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="560" height="{height}" {style}>'
        f'<rect width="560" height="{height}" fill="white"/>'
        f'<text x="108" y="26" font-size="16">{escape(title)}</text>{"".join(rows)}</svg>\n'
    )


def main(spark: "SparkSession", namesrv: str, folder: Path) -> None:
    """Send, read, write and plot."""
    lines = [line for line in SAMPLE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    send(namesrv, TOPIC, lines, tags=[line.split("\t")[2].split("/")[0] for line in lines])

    zones = (
        spark.read.format("rocketmq")
        .option("nameserver", namesrv)
        .option("subscribe", TOPIC)
        .schema("tags string, body string, storeTimestamp timestamp")
        .load()
    )
    parquet = str(folder / "zones.parquet")
    zones.write.partitionBy("tags").mode("overwrite").parquet(parquet)

    counted = spark.read.parquet(parquet).groupBy("tags").count().collect()
    plot = folder / "zones.svg"
    plot.write_text(
        bars({row.tags: row["count"] for row in counted}, "Time zones by continent"), encoding="utf-8"
    )
    print(f"{len(lines)} messages, {sum(row['count'] for row in counted)} rows in {parquet}; plot in {plot}")


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp(prefix="time-zones-"))
    with everything() as (session, address):
        main(session, address, target)
