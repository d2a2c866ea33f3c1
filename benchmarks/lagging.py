"""Lagging groups: reads that stay 10 MB to 1 GB behind producers, by write path and at Apache's broker
(`python -m benchmarks.lagging`).

One side runs at a time. Producers send at a constant rate; one or ten groups read each message once it is that far from
the end. Measured are the groups' MB/s, the latency of sends, and what the broker reads from the disk.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks import java, report
from benchmarks.interval import RunMetrics
from benchmarks.measure import TOPIC, bench
from benchmarks.processes import cpu_seconds, exit_on_sigterm
from benchmarks.servers import QUEUES, ROOT, Apache, MappedRmqpy, Rmqpy, Side
from rmqpy.load import machine
from rmqpy.load.report import duration

OUT = ROOT / "target" / "benchmarks"
NAMES = {"rmqpy": "rmqpy, write ring", "rmqpy-mapped": "rmqpy, mapping", "apache": "Apache 5.5.0"}
COLUMNS = ("lag", "groups", "", "read MB/s", "of what was sent", "p50 of sends", "p99", "disk MB/s", "CPU")
BODY_BYTES = 1_000
#: A store holds this much more than the lag, so that reads begin behind its first message.
_SPARE_BYTES = 10_000_000

Runs = Mapping[str, Sequence[RunMetrics]]
"""Side → its runs."""


@click.command()
@click.option("--lags", default="10,100,1000", show_default=True, metavar="MB,…")
@click.option("--groups", default="1,10", show_default=True, metavar="N,…")
@click.option("--rate", default=30_000, show_default=True, help="Messages of 1,000 bytes a second.")
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--turns", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="One run of 5 s at 10 MB, as a smoke test.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(
    lags: str, groups: str, rate: int, seconds: float, turns: int, quick: bool, folder: Path | None
) -> None:
    """Measure groups that lag behind producers."""
    lib = java.jars("apache")
    exit_on_sigterm()
    if quick:
        lags, seconds, turns = "10", 5.0, 1
    cells = [(int(lag), int(count)) for lag in lags.split(",") for count in groups.split(",")]
    rows: list[list[str]] = []
    kept: dict[str, Runs] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for lag, count in cells:
            runs: dict[str, list[RunMetrics]] = {side: [] for side in NAMES}
            for turn in range(turns):
                for side in (Rmqpy(place), MappedRmqpy(place), Apache(place, lib)):
                    metrics = _run(side, lag, count, rate, seconds)
                    runs[side.name].append(metrics)
                    click.echo(
                        f"  {lag} MB, {count}: {turn + 1}/{turns} {side.name}: {' '.join(_cells(metrics))}"
                    )
            kept[f"{lag} MB, {count}"] = runs
            rows += _rows(lag, count, runs)
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "rate": rate, "seconds": seconds, "runs": kept}
    (OUT / "lagging.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(report.table(COLUMNS, rows))


def _run(side: Side, lag_mb: int, groups: int, rate: int, seconds: float) -> RunMetrics:
    """One run with a new store."""
    side.start()
    try:
        messages = (lag_mb * 1_000_000 + _SPARE_BYTES) // BODY_BYTES
        fill = ("-c", "4", "-w", "8", "--batch", "32", "-s", str(BODY_BYTES), "--queues", str(QUEUES))
        bench(side, "produce", *fill, "--count", str(messages), "-d", "600", "--warm-up", "0")
        lag = lag_mb * 1_000_000 // BODY_BYTES
        read_before, cpu_before = _read_bytes(side.pid), cpu_seconds(side.pid)
        command = [sys.executable, "-m", "benchmarks.lagging_readers", side.address, TOPIC]
        readers = subprocess.Popen(
            [*command, str(groups), str(lag), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        try:
            load = ("-c", "4", "-w", "64", "-s", str(BODY_BYTES), "--rate", str(rate))
            sent = bench(side, "produce", *load, "-d", str(seconds), "--warm-up", "0")
            printed, _ = readers.communicate(timeout=seconds + 60)
        finally:
            readers.kill()
        read = json.loads(printed)
        return {
            "read_mb_s": read["bytes"] / 1e6 / read["seconds"],
            "read_share": read["messages"] / max(1, groups * sent["messages_per_s"] * seconds),
            "p50_us": sent["latency_us"]["p50"],
            "p99_us": sent["latency_us"]["p99"],
            "disk_mb_s": (_read_bytes(side.pid) - read_before) / 1e6 / read["seconds"],
            "cores": (cpu_seconds(side.pid) - cpu_before) / read["seconds"],
        }
    finally:
        side.stop()


def _read_bytes(pid: int) -> int:
    """What a process has had the kernel read from disks."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes:"))


def _cells(metrics: RunMetrics) -> list[str]:
    return [
        f"{metrics['read_mb_s']:,.0f}",
        f"{metrics['read_share']:.0%}",
        duration(metrics["p50_us"]),
        duration(metrics["p99_us"]),
        f"{metrics['disk_mb_s']:,.1f}",
        f"{metrics['cores']:.2f}",
    ]


def _rows(lag: int, groups: int, runs: Runs) -> list[list[str]]:
    """Format the medians of a cell."""
    rows = []
    for side, metrics in runs.items():
        medians = {name: statistics.median(run[name] for run in metrics) for name in metrics[0]}
        rows.append([f"{lag} MB", str(groups), NAMES[side], *_cells(medians)])
    return rows


if __name__ == "__main__":
    sys.exit(main())
