"""`python -m benchmarks.sync`: sends answered when on the disk, by either write path, beside Apache's.

The cells of sync flush of the comparison, with a third side: rmqpy through its write buffer, which SYNC_FLUSH uses by
default, rmqpy through a mapping of the file, and Apache's broker, A B C A B C in one run. All that differs is the
write, so a run on a busy machine or a slow disk still compares.
"""

import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks import java, memory
from benchmarks.cells import CELLS
from benchmarks.interval import RunMetrics
from benchmarks.measure import FULL, QUICK, run_in_turn
from benchmarks.servers import Apache, MappedRmqpy, Rmqpy
from rmqpy.load import machine
from rmqpy.load.report import duration

OUT = Path(__file__).resolve().parent.parent / "target" / "benchmarks"
NAMES = {"rmqpy": "rmqpy, write buffer", "rmqpy-mapped": "rmqpy, mapping", "apache": "Apache 5.5.0"}
COLUMNS = ("cell", "", "messages/s", "p50", "p99", "broker CPU a message")

Results = Mapping[str, Mapping[str, Sequence[RunMetrics]]]
"""Cell → side → its runs."""


@click.command()
@click.option("--quick", is_flag=True, help="Two short runs of each: to see that it works.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the stores lie; /tmp if not given. It must be a real disk.",
)
def main(quick: bool, folder: Path | None) -> None:
    """Sync flush with 1, 64 and 256 outstanding sends: both write paths of rmqpy, and Apache's broker."""
    try:
        lib = java.jars("apache")
    except java.Missing as missing:
        raise click.ClickException(str(missing)) from None
    # As Ctrl-C: servers are stopped and their folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results: dict[str, dict[str, list[RunMetrics]]] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for cell in (cell for cell in CELLS if cell.is_sync_flush):
            click.echo(f"{cell.name}: {cell.title}")
            if not quick:
                memory.fill(place)
            sides = Rmqpy(place), MappedRmqpy(place), Apache(place, lib)
            rounds = run_in_turn(cell, sides, QUICK if quick else FULL, click.echo)
            results[cell.title] = {
                side.name: [metrics[number] for metrics in rounds] for number, side in enumerate(sides)
            }
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "runs": results}
    (OUT / "sync.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(results))


def table(results: Results) -> str:
    """Medians in Markdown, in brackets the smallest and the largest run."""
    rows: list[tuple[str, ...]] = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for title, sides in results.items():
        for side, runs in sides.items():
            spans = [
                _span([run[name] for run in runs], name)
                for name in ("throughput", "p50_us", "p99_us", "cpu_us")
            ]
            rows.append((title, NAMES[side], *spans))
            title = ""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _span(values: Sequence[float], name: str) -> str:
    text = duration if name.endswith("_us") else "{:,.0f}".format
    return f"{text(statistics.median(values))} ({text(min(values))} – {text(max(values))})"


if __name__ == "__main__":
    sys.exit(main())
