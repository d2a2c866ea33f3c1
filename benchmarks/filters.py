"""`python -m benchmarks.filters`: what filters cost a broker, beside none.

Method: one broker, one topic, messages with the properties of an order. Every reader asks for all of them from the
first on, again and again: with no filter, by tag, and by SQL92 that matches all, or none. Readers take turns, round
after round, so that what else the machine does meets all of them. Processor time is the broker's; a message counts
where the broker looked at it, whether it was sent or not.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

import rmqpy
from benchmarks.servers import Rmqpy
from rmqpy.load import machine
from rmqpy.message import Filter

OUT: Final = Path(__file__).resolve().parent.parent / "target" / "benchmarks"
TOPIC: Final = "orders"
BATCH: Final = 500

#: What each message says of itself.
PROPERTIES: Final = {"region": "EU", "price": "120", "customer": "c-4711", "channel": "web", "coupon": "X1"}

READERS: Final[dict[str, Filter]] = {
    "none": "*",
    "a tag, all match": "paid || refunded",
    "a tag, none match": "lost",
    "region = 'EU', all match": rmqpy.sql("region = 'EU'"),
    "region = 'US', none match": rmqpy.sql("region = 'US'"),
    "price > 100, all match": rmqpy.sql("price > 100"),
    "price > 500, none match": rmqpy.sql("price > 500"),
    "five comparisons, all match": rmqpy.sql(
        "price BETWEEN 100 AND 200 AND region IN ('DE', 'EU') AND coupon IS NOT NULL AND "
        "customer STARTSWITH 'c-' AND NOT (channel = 'shop')"
    ),
}


class _Filtering(Rmqpy):
    """Ours, with filters by properties."""

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + "enablePropertyFilter=true\n"


@click.command()
@click.option("--messages", type=click.IntRange(BATCH), default=200_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
def main(messages: int, rounds: int) -> None:
    """Measure what each filter costs the broker a message it looks at."""
    messages -= messages % BATCH
    results: dict[str, list[float]] = {name: [] for name in READERS}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-") as folder:
        side = _Filtering(Path(folder))
        try:
            side.start()
            _fill(side.namesrv, messages)
            for turn in range(rounds + 1):
                for name, wanted in READERS.items():
                    used = _read(side, wanted, messages)
                    # The first round brings everything into memory.
                    if turn > 0:
                        results[name].append(used / messages)
        finally:
            side.stop()
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "messages": messages, "broker_cpu_us": results}
    (OUT / "filters.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(results))


def table(results: dict[str, list[float]]) -> str:
    """Medians in Markdown, in brackets the smallest and the largest round."""
    none = statistics.median(results["none"])
    lines = ["| filter | broker CPU a message, µs | more than with none |", "|---|---|---|"]
    for name, runs in results.items():
        median = statistics.median(runs)
        more = "" if name == "none" else f"{median - none:+.2f}"
        lines.append(f"| {name} | {median:.2f} ({min(runs):.2f} – {max(runs):.2f}) | {more} |")
    return "\n".join(lines)


def _fill(namesrv: str, messages: int) -> None:
    with rmqpy.Admin(namesrv) as admin:
        admin.create_topic(TOPIC, read_queues=1, write_queues=1)
    message = rmqpy.Message(TOPIC, b"x" * 128, tag="paid", keys="A-1", properties=PROPERTIES)
    with rmqpy.Producer(namesrv) as producer:
        for _ in range(messages // BATCH):
            producer.send_batch([message] * BATCH)


def _read(side: Rmqpy, wanted: Filter, messages: int) -> float:
    """Read all of the topic once; the processor time of the broker, in microseconds."""
    queues: Sequence[rmqpy.MessageQueue]
    with rmqpy.Catalog(side.namesrv) as catalog:
        queues = catalog.queues(TOPIC)
    ranges = [rmqpy.QueueRange(queue, 0, messages) for queue in queues]
    before = _cpu_us(side.pid)
    with rmqpy.read_ranges(ranges, side.namesrv, columns=["queueOffset"], tags=wanted) as batches:
        for _ in batches:
            pass
    return _cpu_us(side.pid) - before


def _cpu_us(pid: int) -> float:
    """Processor time of a process by the scheduler's clock: that of `stat` goes in steps of 10 ms."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1_000


if __name__ == "__main__":
    sys.exit(main())
