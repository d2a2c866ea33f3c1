"""Catch-up: times how a new slave copies a master's gigabytes, rmqpy and Apache's (`python -m benchmarks.catch_up`).

Each pair has the machine to itself. Measured are the time from the start of the slave until its queues equal its
master's, and the processor time of both.
"""

import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from benchmarks import java, report, wire
from benchmarks.interval import RunMetrics
from benchmarks.measure import TOPIC, bench
from benchmarks.processes import cpu_seconds, exit_on_sigterm
from benchmarks.servers import ROOT, Apache, ApacheSlave, Rmqpy, RmqpySlave, Side, Slave
from rmqpy.load import machine

OUT = ROOT / "target" / "benchmarks"
NAMES = {"rmqpy": "rmqpy", "apache": "Apache 5.5.0"}
COLUMNS = ("", "seconds", "MB/s", "master, ms of CPU per MB", "slave, ms of CPU per MB")
_BODY_BYTES = 1_000
_SECONDS_MAX = 600.0
_LOOK_SECONDS = 0.02

#: Side → its runs.
Runs = Mapping[str, Sequence[RunMetrics]]


@click.command()
@click.option("--gigabytes", default=5.0, show_default=True, help="Message bodies to copy, 1,000 bytes each.")
@click.option("--rounds", default=3, show_default=True)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk with room for three times as much; /tmp by default.",
)
def main(gigabytes: float, rounds: int, folder: Path | None) -> None:
    """Measure how long a new slave takes to copy its master."""
    lib = java.jars("apache")
    exit_on_sigterm()
    runs: dict[str, list[RunMetrics]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for number in range(rounds):
            pairs: Sequence[tuple[Side, Slave]] = (
                (ours := Rmqpy(place), RmqpySlave(ours.folder)),
                (theirs := Apache(place, lib), ApacheSlave(theirs.folder, lib)),
            )
            for master, slave in pairs:
                metrics = _caught_up(master, slave, round(gigabytes * 1e9 / _BODY_BYTES))
                runs[master.name].append(metrics)
                click.echo(f"  {number + 1}/{rounds} {master.name}: " + ", ".join(_cells(metrics)))
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "gigabytes": gigabytes, "runs": runs}
    (OUT / "catch-up.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(runs))


def _caught_up(master: Side, slave: Slave, messages: int) -> RunMetrics:
    """One run with new stores."""
    slave.follow(master)
    try:
        master.start()
        fill = ("-c", "4", "-w", "8", "--batch", "32", "-s", str(_BODY_BYTES))
        filled = bench(master, "produce", *fill, "--count", str(messages), "-d", "600", "--warm-up", "0")
        megabytes = filled["bytes"] / 1e6
        # Apache's broker dispatches after it responds.
        stored = _ends(master, lambda ends: sum(ends) >= messages)
        before, began = cpu_seconds(master.pid), time.monotonic()
        slave.start_broker()
        _ends(slave, lambda ends: ends == stored)
        seconds = time.monotonic() - began
        return {
            "seconds": seconds,
            "mb_s": megabytes / seconds,
            "master_ms": (cpu_seconds(master.pid) - before) * 1e3 / megabytes,
            "slave_ms": cpu_seconds(slave.pid) * 1e3 / megabytes,
        }
    finally:
        slave.stop_broker()
        master.stop()


def _ends(broker: Side, has_all: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Wait for all messages; return the end of each queue of the topic, none of which is empty."""
    began = time.monotonic()
    while True:
        each = (wire.max_offset(broker.address, TOPIC, queue) for queue in itertools.count())
        ends = list(itertools.takewhile(bool, each))
        if has_all(ends):
            return ends
        if time.monotonic() - began > _SECONDS_MAX:
            raise RuntimeError(
                f"{broker.name} has {sum(ends)} messages, and lacks some, after {_SECONDS_MAX:.0f} s"
            )
        time.sleep(_LOOK_SECONDS)


def _cells(metrics: RunMetrics) -> list[str]:
    return [
        f"{metrics['seconds']:.1f} s",
        f"{metrics['mb_s']:,.0f} MB/s",
        f"{metrics['master_ms']:.2f} ms",
        f"{metrics['slave_ms']:.2f} ms",
    ]


def table(runs: Runs) -> str:
    """Format the medians as Markdown."""
    rows = [
        [NAMES[side], *_cells({name: statistics.median(run[name] for run in metrics) for name in metrics[0]})]
        for side, metrics in runs.items()
    ]
    return report.table(COLUMNS, rows)


if __name__ == "__main__":
    sys.exit(main())
