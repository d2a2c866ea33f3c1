"""Filter costs: a broker's processor time per message by kind of filter (`python -m benchmarks.filters`).

Method: one broker and one topic, whose messages have the properties of an order. Each reader reads the whole topic
repeatedly: without a filter, by tag, and by SQL92 that matches all messages or none. Readers take turns, so that
other load on the machine affects all of them. Processor time is the broker's; a message counts if the broker examined
it, whether it was delivered or not.
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

#: The properties of each message.
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
    """Our broker, with property filters enabled."""

    def settings(self, is_sync_flush: bool) -> str:
        return super().settings(is_sync_flush) + "enablePropertyFilter=true\n"


@click.command()
@click.option("--messages", type=click.IntRange(BATCH), default=200_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
def main(messages: int, rounds: int) -> None:
    """Measure the cost of each filter per examined message."""
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
    """Format medians as Markdown, with the smallest and largest round in brackets."""
    none = statistics.median(results["none"])
    lines = ["| filter | broker CPU per message, µs | more than without |", "|---|---|---|"]
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
    """Read the whole topic once; return the broker's processor time in microseconds."""
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
    """A process's processor time by the scheduler's clock; that of `stat` has steps of 10 ms."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1_000


if __name__ == "__main__":
    sys.exit(main())
