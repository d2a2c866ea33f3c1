"""Write paths: sends through each write path, and at Apache's broker, in one run (`python -m benchmarks.write_paths
sync|async`).

The rows of rmqpy differ only in the write, so they are comparable even on a busy machine or a slow disk. With
asynchronous flush the floor is measured too, and the state of memory matters: `warm` memory is full of a file that
was read once, as after hours of service; `cold` memory was just freed by another program, and a virtual machine's
host has to find each page again.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click

from benchmarks import java, memory
from benchmarks.cells import CELLS, Cell
from benchmarks.interval import RunMetrics
from benchmarks.measure import FULL, QUICK, run_in_turn
from benchmarks.processes import exit_on_sigterm
from benchmarks.servers import Apache, Floor, MappedRmqpy, Rmqpy, Side
from rmqpy.load import machine
from rmqpy.load.report import duration

Flush = Literal["sync", "async"]
OUT = Path(__file__).resolve().parent.parent / "target" / "benchmarks"
#: Suffix of a side's name; the first is rmqpy's default.
SIDES: Mapping[Flush, Mapping[str, str]] = {
    "sync": {"rmqpy": "write ring", "rmqpy-mapped": "mapping", "apache": "Apache 5.5.0"},
    "async": {"rmqpy": "write ring", "rmqpy-mapped": "mapping", "apache": "Apache 5.5.0", "floor": "floor"},
}
COLUMNS = (
    "cell",
    "",
    "messages/s",
    "p50",
    "p99",
    "broker CPU per message",
    "over the floor's",
    "over Apache's",
)

Results = Mapping[str, Mapping[str, Sequence[RunMetrics]]]
"""Cell → side → its runs."""


@click.command()
@click.argument("flush", type=click.Choice(["sync", "async"]))
@click.option("--memory", "state", type=click.Choice(["warm", "cold"]), default="warm", show_default=True)
@click.option("--cells", default="", metavar="NAME,…", help="Only these.")
@click.option("--quick", is_flag=True, help="Two short runs of each, as a smoke test.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(flush: Flush, state: memory.State, cells: str, quick: bool, folder: Path | None) -> None:
    """Compare rmqpy's write paths with each other and with Apache's broker."""
    lib = java.jars("apache")
    exit_on_sigterm()
    names = [name for name in cells.split(",") if name]
    chosen = [cell for cell in _cells(flush) if not names or cell.name in names]
    if not chosen:
        raise click.BadParameter(f"choose from {', '.join(cell.name for cell in _cells(flush))}")
    results: dict[str, dict[str, list[RunMetrics]]] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for cell in chosen:
            click.echo(f"{cell.name}: {cell.title}, {state} memory")
            if not quick:
                memory.make(state, place)
            sides = _sides(flush, place, lib)
            rounds = run_in_turn(cell, sides, QUICK if quick else FULL, click.echo)
            results[cell.title] = {
                side.name: [metrics[number] for metrics in rounds] for number, side in enumerate(sides)
            }
            click.echo(table(flush, {cell.title: results[cell.title]}))
    OUT.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine.facts(), "memory": state, "runs": results}
    file = OUT / f"write-paths-{flush}-{state}.json"
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    click.echo(table(flush, results))


def _cells(flush: Flush) -> list[Cell]:
    if flush == "sync":
        return [cell for cell in CELLS if cell.is_sync_flush]
    # `benchmarks.bulk` measures large batches, one side at a time, because all stores together fill a disk.
    return [cell for cell in CELLS if cell.has_floor and cell.name != "bulk"]


def _sides(flush: Flush, place: Path, lib: Path) -> tuple[Side, ...]:
    sides = Rmqpy(place), MappedRmqpy(place), Apache(place, lib)
    return sides if flush == "sync" else (*sides, Floor(place))


def table(flush: Flush, results: Results) -> str:
    """Format medians as Markdown, with the smallest and largest run in brackets; ratios are medians over the rounds."""
    rows: list[tuple[str, ...]] = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for title, sides in results.items():
        for side, name in SIDES[flush].items():
            spans = [
                _span(column, [run[column] for run in sides[side]])
                for column in ("throughput", "p50_us", "p99_us", "cpu_us")
            ]
            over_floor = _ratio("cpu_us", side, "floor", sides, "{:.2f}×".format)
            of_apache = _ratio("throughput", side, "apache", sides, "{:.2f}× messages".format)
            rows.append((title, name, *spans, over_floor, of_apache))
            title = ""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _ratio(
    column: str, side: str, of: str, sides: Mapping[str, Sequence[RunMetrics]], text: Callable[[float], str]
) -> str:
    if of not in sides or side == of:
        return ""
    pairs = zip(sides[side], sides[of], strict=True)
    return text(statistics.median(run[column] / other[column] for run, other in pairs))


def _span(column: str, values: Sequence[float]) -> str:
    # Processor time is less than a microsecond.
    text = {"throughput": "{:,.0f}".format, "cpu_us": "{:.2f} us".format}.get(column, duration)
    return f"{text(statistics.median(values))} ({text(min(values))} – {text(max(values))})"


if __name__ == "__main__":
    sys.exit(main())
