"""Tables: the rates of archives, and queries of a topic compared with Polars on the same rows in Parquet
(`python -m benchmarks.tables`).

Method: one broker and one topic, whose messages are small JSON objects. Archives in Parquet, Delta and Iceberg take
turns, each in a new process and into a new folder; their rate is in bytes of stored messages a second of the
archiver's processor time. Then a query, "messages and revenue by tag", is answered from the topic by
`rmqpy.read_topic` with Polars and by DuckDB, as `rmqpy sql` does, and from the Parquet archive by Polars; and all
columns are taken into memory from either. Each is a new process, of which seconds, processor time and peak memory are
reported. All results are checked to be the same.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

import rmqpy
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import Rmqpy
from rmqpy.load import machine

OUT: Final = Path(__file__).resolve().parent.parent / "target" / "reports"
TOPIC: Final = "sales"
QUEUES: Final = 8
#: Rows of one batch of the producer.
BATCH: Final = 50_000
SCHEMA: Final = "customer string, price double"
ARCHIVES: Final = ("parquet", "delta", "iceberg")
#: Columns of both sides of a read into memory.
COLUMNS: Final = ("queueId", "queueOffset", "msgId", "tags", "body", "storeTimestamp")
QUERY: Final = (
    f"select tags, count(*) as n, sum(body.price) as total from {TOPIC} group by tags order by tags"
)


@dataclass(frozen=True)
class Run:
    """One process."""

    seconds: float
    cpu_s: float
    peak_bytes: int
    #: What it found: messages, or rows of the query.
    found: Any
    load: float


# --- the jobs, each in a new process ---


def archive(namesrv: str, folder: str, kind: str) -> int:
    """Archive the topic."""
    from rmqpy.tables.archive.run import open_archive

    made = open_archive(TOPIC, folder, namesrv, format=kind, body_format="json", body_schema=SCHEMA)
    try:
        return made.run().messages
    finally:
        made.close()


def read_topic(namesrv: str, folder: str, kind: str) -> Any:
    """Read the topic, by `kind`: all columns into memory, or the query."""
    if kind == "columns":
        return rmqpy.read_topic(TOPIC, namesrv, columns=list(COLUMNS)).to_polars().height
    if kind == "sql":
        from rmqpy.tables.database import Topics

        topics = Topics(lambda name: rmqpy.read_topic(name, namesrv, body_format="json", body_schema=SCHEMA))
        return [list(row) for page in list(topics.pages(QUERY, 1000))[1:] for row in page]
    import polars

    typed = rmqpy.read_topic(TOPIC, namesrv, columns=["tags", "body"], body_format="json", body_schema=SCHEMA)
    totals: dict[str, list[float]] = {}
    for batch in typed.batches():
        for tag, count, total in _totals(polars.DataFrame(batch).lazy()):
            known = totals.setdefault(tag, [0, 0.0])
            known[0] += count
            known[1] += total
    return [[tag, int(count), total] for tag, (count, total) in sorted(totals.items())]


def read_parquet(namesrv: str, folder: str, kind: str) -> Any:
    """Read the archive with Polars, as `read_topic` reads the topic."""
    import polars

    frame = polars.scan_parquet(f"{folder}/**/*.parquet")
    if kind == "columns":
        return frame.select(COLUMNS).collect().height
    return _totals(frame)


def _totals(frame: Any) -> list[list[Any]]:
    import polars

    price = polars.col("body").struct.field("price")
    grouped = frame.group_by("tags").agg(polars.len().alias("n"), price.sum().alias("total")).sort("tags")
    return [list(row) for row in grouped.collect().rows()]


JOBS: Final[dict[str, Callable[[str, str, str], Any]]] = {
    "archive": archive,
    "topic": read_topic,
    "parquet": read_parquet,
}


def job(name: str, *arguments: str) -> None:
    """Do a job, and print its cost."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    found = JOBS[name](*arguments)
    seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    # Unlike `ru_maxrss`, without the memory of the process that started this one.
    peak_bytes = (machine.kibibytes(Path("/proc/self/status"), "VmHWM") or 0) << 10
    print(json.dumps(asdict(Run(seconds, cpu_s, peak_bytes, found, os.getloadavg()[0]))))


# --- the benchmark ---


def run(name: str, *arguments: str) -> Run:
    """Do a job in a new process."""
    command = [sys.executable, "-m", "benchmarks.tables", "job", name, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def fill(namesrv: str, messages: int) -> int:
    """Send orders; return the bytes of their records in the log."""
    import pyarrow as pa

    with rmqpy.Admin(namesrv) as admin:
        admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
    with rmqpy.Producer(namesrv, max_in_flight=8) as producer:
        for first in range(0, messages, BATCH):
            numbers = range(first, min(first + BATCH, messages))
            rows = pa.table(
                {
                    "body": [
                        f'{{"customer": "c-{at % 5000}", "price": {at % 1000 / 4}, "note": "{at:032}"}}'.encode()
                        for at in numbers
                    ],
                    "tags": ["paid" if at % 3 else "refunded" for at in numbers],
                }
            )
            for future in list(
                producer.submit_rows(rows, topic=TOPIC, batch_messages=256, batch_bytes=128 << 10)
            ):
                if failure := future.exception():
                    raise failure
    sizes = rmqpy.read_topic(TOPIC, namesrv, columns=["storeSize"])
    assert sizes.offsets == messages
    return sum(pa.record_batch(batch).column(0).to_numpy().sum() for batch in sizes.batches())


@click.command()
@click.option("--messages", type=click.IntRange(1000), default=10_000_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--quick", is_flag=True, help="A million messages, one round.")
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Folder of stores and tables."
)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), default=OUT / "bench-tables.md")
def main(messages: int, rounds: int, quick: bool, folder: Path | None, report: Path) -> None:
    """Measure archives and queries."""
    if quick:
        messages, rounds = min(messages, 1_000_000), 1
    exit_on_sigterm()
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as place:
        side = Rmqpy(Path(place))
        try:
            side.start()
            stored = fill(side.namesrv, messages)
            for turn in range(rounds):
                for kind in ARCHIVES:
                    table = f"{place}/{kind}"
                    shutil.rmtree(table, ignore_errors=True)
                    runs.setdefault(f"archive {kind}", []).append(run("archive", side.namesrv, table, kind))
                for name, kind in (("topic", "query"), ("topic", "sql"), ("parquet", "query")):
                    found = run(name, side.namesrv, f"{place}/parquet", kind)
                    runs.setdefault(f"{name} {kind}", []).append(found)
                for name in ("topic", "parquet"):
                    found = run(name, side.namesrv, f"{place}/parquet", "columns")
                    runs.setdefault(f"{name} columns", []).append(found)
                click.echo(f"turn {turn + 1} of {rounds}: load {os.getloadavg()[0]:.1f}", err=True)
        finally:
            side.stop()
    check(runs, messages)
    text = "\n".join([*_head(messages, rounds, stored), *_archives(runs, stored), *_reads(runs)])
    click.echo(text)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(text + "\n", encoding="utf-8")


def check(runs: dict[str, list[Run]], messages: int) -> None:
    """Check that each run found every message, and that queries agree."""
    for name, found in runs.items():
        for each in found:
            if name.startswith("archive") or name.endswith("columns"):
                assert each.found == messages, (name, each)
            else:
                assert sum(count for _, count, _ in each.found) == messages, (name, each)
    wanted = runs["parquet query"][0].found
    for name in ("topic query", "topic sql"):
        for each in runs[name]:
            assert [row[:2] for row in each.found] == [row[:2] for row in wanted], name
            assert all(
                abs(one[2] - other[2]) <= 1e-6 * other[2]
                for one, other in zip(each.found, wanted, strict=True)
            ), name


def _head(messages: int, rounds: int, stored: int) -> list[str]:
    facts = machine.facts()
    return [
        "# Topics as tables",
        "",
        f"`make bench NAME=tables`: {facts['processor']}, {facts['cores']} cores, Python {facts['python']}. "
        f"{messages:,} messages in {QUEUES} queues, {stored / messages:.0f} bytes each in the log, {rounds} turns; "
        "medians. [How it is measured](README.md#tables).",
        "",
    ]


def _archives(runs: dict[str, list[Run]], stored: int) -> list[str]:
    lines = [
        "## Archives",
        "",
        "| format | MB/s a core | MB/s | µs a message | peak memory, MB | load |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ARCHIVES:
        found = runs[f"archive {kind}"]
        cpu_s, seconds = _median(found, "cpu_s"), _median(found, "seconds")
        lines.append(
            f"| {kind} | {stored / cpu_s / 1e6:.0f} | {stored / seconds / 1e6:.0f} | "
            f"{cpu_s / found[0].found * 1e6:.2f} | {_median(found, 'peak_bytes') / 1e6:.0f} | "
            f"{_median(found, 'load'):.1f} |"
        )
    return [*lines, ""]


def _reads(runs: dict[str, list[Run]]) -> list[str]:
    names = {
        "topic query": "query: `read_topic` and Polars",
        "topic sql": "query: `rmqpy sql`",
        "parquet query": "query: Polars on the Parquet archive",
        "topic columns": "six columns into memory: `read_topic(…).to_polars()`",
        "parquet columns": "six columns into memory: Polars on the Parquet archive",
    }
    lines = [
        "## Queries",
        "",
        "| | seconds | processor seconds | peak memory, MB | load |",
        "|---|---|---|---|---|",
    ]
    for key, name in names.items():
        found = runs[key]
        lines.append(
            f"| {name} | {_median(found, 'seconds'):.2f} | {_median(found, 'cpu_s'):.2f} | "
            f"{_median(found, 'peak_bytes') / 1e6:.0f} | {_median(found, 'load'):.1f} |"
        )
    return lines


def _median(runs: list[Run], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in runs))


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job(*sys.argv[2:])
    else:
        main()
