"""Sustained bulk: large batches for a minute, at each side and with a plain writer (`python -m benchmarks.bulk`).

The load of the cell *bulk*, long enough that the disk must keep up. Each side has the machine to itself, with a new
store that is removed before the next one starts. The plain writer (`sequential_writer`) shows the disk's limit for a
program that only writes. The second rate includes the time of a final `sync`.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks import java, memory, report
from benchmarks.cells import Cell, named
from benchmarks.interval import RunMetrics
from benchmarks.measure import QUICK, bench, warm
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import ROOT, Apache, Floor, MappedRmqpy, Rmqpy, Side
from rmqpy.load import machine
from rmqpy.load.report import broker_cpu_us, duration

OUT = ROOT / "target" / "benchmarks"
NAMES = {
    "rmqpy": "rmqpy, write ring",
    "rmqpy-mapped": "rmqpy, mapping",
    "apache": "Apache 5.5.0",
    "floor": "floor, in memory",
    "writer": "plain writer",
}
COLUMNS = ("", "MB/s", "MB/s until on the disk", "p50", "p99", "processor time per MB")
#: Maximum disk space per second of load; no side has written more here.
_BYTES_A_SECOND = 1_000_000_000
_SECONDS, _TURNS = 60.0, 2
_SECONDS_QUICK = 2.0

Runs = Mapping[str, Sequence[RunMetrics]]
"""Side → its runs."""


@click.command()
@click.option("--quick", is_flag=True, help="One short run of each, as a smoke test.")
@click.option(
    "--seconds", type=click.FloatRange(min=0.5), help=f"Duration of one run; {_SECONDS:g} by default."
)
@click.option(
    "--turns", type=click.IntRange(1, 10), default=_TURNS, show_default=True, help="Runs of each side."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(quick: bool, seconds: float | None, turns: int, folder: Path | None) -> None:
    """Batches of 1,000 × 1,000 B for a minute: rmqpy, Apache's broker, the floor, and a plain writer."""
    seconds = seconds or (_SECONDS_QUICK if quick else _SECONDS)
    lib = java.jars("apache")
    exit_on_sigterm()
    runs: dict[str, list[RunMetrics]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        if shutil.disk_usage(place).free < (needed := round(_BYTES_A_SECOND * seconds)):
            raise click.ClickException(f"{place} may need {needed / 1e9:.0f} GB: --seconds, --folder")
        [cell] = named("bulk")
        if not quick:
            memory.fill(place)
        for turn in range(1 if quick else turns):
            for side in (Rmqpy(place), MappedRmqpy(place), Apache(place, lib), Floor(place)):
                runs[side.name].append(_load(side, cell, seconds))
                click.echo(f"  {turn + 1} {side.name:7} {runs[side.name][-1]['mb_s']:,.0f} MB/s")
            runs["writer"].append(writer(place, seconds))
            click.echo(f"  {turn + 1} writer  {runs['writer'][-1]['mb_s']:,.0f} MB/s")
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "seconds": seconds, "runs": runs}
    (OUT / "bulk.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(runs))


def _load(side: Side, cell: Cell, seconds: float) -> RunMetrics:
    """One run with a new store."""
    try:
        side.start()
        warm(side, cell, QUICK, lambda text: None)
        os.sync()
        result = bench(side, "produce", *cell.options, "-d", str(seconds), "--warm-up", "0")
        ended = time.monotonic()
        os.sync()
        synced = result["interval_s"] + time.monotonic() - ended
        if result["refused"]:
            raise RuntimeError(f"{side.name} refused sends: {result['refused']}")
        megabytes = result["bytes"] / 1e6
        return {
            "mb_s": megabytes / result["interval_s"],
            "mb_s_synced": megabytes / synced,
            "p50_us": result["latency_us"]["p50"],
            "p99_us": result["latency_us"]["p99"],
            "cpu_us": (broker_cpu_us(result) or 0.0) * result["messages"] / megabytes,
        }
    finally:
        side.stop()


def writer(folder: Path, seconds: float) -> RunMetrics:
    """One run of the plain writer."""
    command = [sys.executable, "-m", "benchmarks.sequential_writer", str(folder / "plain"), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    megabytes = result["bytes"] / 1e6
    return {
        "mb_s": megabytes / result["seconds"],
        "mb_s_synced": megabytes / result["synced_seconds"],
        "cpu_us": result["cpu_seconds"] * 1e6 / megabytes,
    }


def table(runs: Runs) -> str:
    """Format medians as Markdown, with the smallest and largest run in brackets."""
    names = {"mb_s": "{:,.0f}".format, "mb_s_synced": "{:,.0f}".format}
    times = dict.fromkeys(("p50_us", "p99_us", "cpu_us"), duration)
    rows = []
    for side, metrics in runs.items():
        cells = [NAMES[side]]
        for name, text in (names | times).items():
            values = [run[name] for run in metrics if name in run]
            median = statistics.median(values) if values else 0.0
            cells.append(f"{text(median)} ({text(min(values))} – {text(max(values))})" if values else "")
        rows.append(cells)
    return report.table(COLUMNS, rows)


if __name__ == "__main__":
    sys.exit(main())
