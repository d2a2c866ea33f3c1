"""Cells: the parts of the comparison, with the bars each must meet.

A bar is a ratio of rmqpy's result to Apache's in the same round, or to the floor's: the cost of the same sends for a
thread that only appends and responds. Absolute values depend on the machine.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["produce", "consume", "latency", "start", "java-producer", "client"]
Metric = Literal["throughput", "p50", "p99", "cpu", "floor", "start", "memory"]

METRICS: dict[Metric, str] = {
    "throughput": "messages/s",
    "p50": "p50",
    "p99": "p99",
    "cpu": "broker CPU per message",
    "floor": "broker CPU per message, over the floor's",
    "start": "start to first accepted send",
    "memory": "private memory at rest",
}
HIGHER_IS_BETTER: frozenset[Metric] = frozenset({"throughput"})


@dataclass(frozen=True)
class Bar:
    """A ratio to Apache's result: a minimum if more is better, otherwise a maximum."""

    metric: Metric
    ratio: float

    def holds(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.metric in HIGHER_IS_BETTER else ratio <= self.ratio

    def text(self) -> str:
        if self.metric in HIGHER_IS_BETTER:
            return f"{METRICS[self.metric]} ≥ {self.ratio:g}×"
        most = f"{self.ratio:g}×" if self.ratio >= 1 else f"1/{1 / self.ratio:g}"
        return f"{METRICS[self.metric]} ≤ {most}"


@dataclass(frozen=True)
class Cell:
    """One comparison."""

    name: str
    title: str
    kind: Kind
    #: Options of `rmqpy bench`, or of the Java producer.
    options: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    is_sync_flush: bool = False
    #: Ends after this many messages instead of by time: a burst that the page cache holds.
    count: int | None = None
    #: A factor on the duration.
    longer: float = 1.0

    @property
    def body_bytes(self) -> int:
        """The body size of one message."""
        at = self.options.index("-s") + 1 if "-s" in self.options else None
        return 128 if at is None else int(self.options[at])

    @property
    def has_floor(self) -> bool:
        """Whether the floor is measured, too: for sends that do not wait for a disk."""
        return self.kind == "produce" and not self.is_sync_flush


def _at_least(throughput: float, cpu: float | None = None, floor: float | None = None) -> tuple[Bar, ...]:
    of_cpu: dict[Metric, float | None] = {"cpu": cpu, "floor": floor}
    bars = (Bar(metric, ratio) for metric, ratio in of_cpu.items() if ratio is not None)
    return (Bar("throughput", throughput), *bars)


CELLS: tuple[Cell, ...] = (
    Cell("1x1", "1 × 1, 128 B, JSON", "produce", ("-c", "1", "-w", "1"), _at_least(3, 1 / 8, 1.3)),
    Cell("64x1", "64 × 1, 128 B, JSON", "produce", ("-c", "64", "-w", "1"), _at_least(3.5, 1 / 8, 1.3)),
    Cell("4x64", "4 × 64, 128 B, JSON", "produce", ("-c", "4", "-w", "64"), _at_least(9, 1 / 12, 2)),
    Cell(
        "4x256-binary",
        "4 × 256, 128 B, binary",
        "produce",
        ("-c", "4", "-w", "256", "--header", "binary"),
        _at_least(12, 1 / 15, 2.2),
    ),
    Cell(
        "4x64-1k",
        "4 × 64, 1 KiB, binary, burst",
        "produce",
        ("-c", "4", "-w", "64", "-s", "1024", "--header", "binary"),
        _at_least(10, 1 / 12, 2),
        count=700_000,
    ),
    Cell(
        "batch",
        "4 × 8, batches of 32 × 128 B",
        "produce",
        ("-c", "4", "-w", "8", "--batch", "32"),
        _at_least(5, 1 / 8, 2.5),
    ),
    Cell(
        "bulk",
        "4 × 1, batches of 1,000 × 1,000 B, burst",
        "produce",
        ("-c", "4", "-w", "1", "--batch", "1000", "-s", "1000"),
        _at_least(2),
        count=1_000_000,
    ),
    Cell("pull-1", "pull, 1 connection × 32", "consume", ("-c", "1", "-w", "1"), _at_least(4, 1 / 5)),
    Cell("pull-16", "pull, 16 connections × 32", "consume", ("-c", "16", "-w", "1"), _at_least(4, 1 / 5)),
    Cell(
        "sync-1x1", "sync flush, 1 × 1", "produce", ("-c", "1", "-w", "1"), _at_least(2.5), is_sync_flush=True
    ),
    Cell(
        "sync-64x1",
        "sync flush, 64 × 1",
        "produce",
        ("-c", "64", "-w", "1"),
        _at_least(2.5),
        is_sync_flush=True,
    ),
    Cell(
        "sync-4x64",
        "sync flush, 4 × 64",
        "produce",
        ("-c", "4", "-w", "64"),
        _at_least(6),
        is_sync_flush=True,
    ),
    Cell(
        "open-30k",
        "open loop, 30,000/s",
        "latency",
        ("-c", "4", "-w", "1024", "--rate", "30000"),
        (Bar("p99", 1 / 15),),
        longer=10.0,
    ),
    Cell("start", "start and rest", "start", (), (Bar("start", 1 / 12), Bar("memory", 1 / 15))),
    Cell(
        "java-producer",
        "Java's benchmark producer, -w 64 -s 128",
        "java-producer",
        ("-w", "64", "-s", "128"),
        _at_least(1.7),
    ),
    Cell("python-client", "the Python client, with Java's producer", "client", (), _at_least(1)),
)


def named(names: str) -> tuple[Cell, ...]:
    """Select cells by comma-separated names; all for an empty list. Raises `KeyError` for an unknown name."""
    by_name = {cell.name: cell for cell in CELLS}
    return tuple(by_name[name.strip()] for name in names.split(",")) if names else CELLS
