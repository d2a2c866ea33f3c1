"""`python -m benchmarks.peer_cells`: Kafka, NATS JetStream and Redis streams under the load of the comparison's cells.

Cells of the comparison, with brokers that do another job: what they promise with an answer differs, and stands beside
the results. All take turns in one run; those that are not installed are left out.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks import memory, report
from benchmarks.cells import Cell, named
from benchmarks.interval import RunMetrics
from benchmarks.measure import Pace, load, take_turns, warm
from benchmarks.peers import OTHER_SYSTEMS, Kafka, OtherSystem
from benchmarks.processes import exit_on_sigterm
from benchmarks.revision import revision
from benchmarks.servers import Rmqpy, example
from rmqpy import __version__
from rmqpy.load import machine

HERE = Path(__file__).resolve().parent
CELLS = "1x1,64x1,4x64,4x256-binary,4x64-1k,batch,bulk,pull-1,pull-16"
FULL = Pace(pairs=5, seconds=1.5, warm_up=0.3, ramp=2.0, ramps_max=6, burst=1.0)
QUICK = Pace(pairs=2, seconds=0.7, warm_up=0.3, ramp=1.0, ramps_max=2, burst=1.0)
DURABILITY = "`ASYNC_FLUSH`: in the page cache of its log, which is flushed every 50 ms"

Runs = Mapping[str, Sequence[RunMetrics]]
"""Side → its runs."""


@click.command()
@click.option("--quick", is_flag=True, help="Two short runs of each: to see that it works.")
@click.option("--cells", default=CELLS, metavar="NAME,…", help="Only these.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the stores lie; /tmp if not given. It must be a real disk.",
)
def main(quick: bool, cells: str, folder: Path | None) -> None:
    """rmqpy beside Kafka, NATS JetStream and Redis streams: the same load, in turns."""
    kinds = [kind for kind in OTHER_SYSTEMS if not _is_missing(kind)]
    if not kinds:
        raise click.ClickException("there is no other broker on this machine")
    generator = example("peer_load")
    exit_on_sigterm()
    began = time.monotonic()
    results: dict[Cell, Runs] = {}
    settings: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for cell in named(cells):
            click.echo(f"{cell.name}: {cell.title}  ({time.monotonic() - began:.0f} s)")
            if not quick:
                memory.fill(place)
            sides: list[Rmqpy | OtherSystem] = [Rmqpy(place)]
            sides += (kind(place, generator) for kind in kinds if _can(kind, cell))
            results[cell] = _measure(cell, sides, QUICK if quick else FULL)
            settings |= {_title(side): _settings(side).replace(name, "FOLDER") for side in sides}
    out = HERE.parent / "target" / "benchmarks" if quick else HERE
    out.mkdir(parents=True, exist_ok=True)
    command = "make bench-peers" + (" BENCH=quick" if quick else "")
    text = document(results, settings, kinds, about(command, QUICK if quick else FULL))
    (out / "peers.md").write_text(text, encoding="utf-8")
    click.echo(f"{time.monotonic() - began:.0f} s; see {out / 'peers.md'}")


def about(command: str, pace: Pace) -> str:
    """Place, time and versions of the measurement."""
    facts = machine.facts()
    memory_gib = machine.memory_bytes() / 2**30
    return (
        f"`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, rmqpy {__version__} at revision {revision()}. "
        f"{facts['processor']}, {facts['cores']} cores, {memory_gib:.0f} GiB, {facts['system']}. "
        f"{pace.pairs} turns of {pace.seconds:g} s a cell; all brokers in turn in one run, stores new for each cell."
    )


def document(
    results: Mapping[Cell, Runs], settings: Mapping[str, str], kinds: Sequence[type[OtherSystem]], text: str
) -> str:
    """The report as Markdown."""
    promises = [("rmqpy", DURABILITY), *((kind.name, kind.durability) for kind in kinds)]
    parts = [
        "# Other brokers, same load",
        f"{text} [How it is measured](README.md#other-brokers).",
        "Medians, in brackets the smallest and the largest run. Ratios are rmqpy's results to those of the other, "
        "medians over the turns. *Load* and *other* are what the load generator and everything else took beside the "
        "broker, in cores. JSON and binary are headers of RocketMQ; the others have one form. NATS and Redis have no "
        "request for several messages.",
        report.table(report.LOAD_HEAD, [row for cell, runs in results.items() for row in rows(cell, runs)]),
        "## When a send is answered",
        report.table(["", "the message is"], promises),
        "## Settings",
        f"Everything not named is each broker's default, but for Kafka's heap: `java {' '.join(Kafka.options)}`.",
        *(f"{name}:\n```\n{lines.strip()}\n```" for name, lines in settings.items()),
    ]
    return "\n\n".join(parts) + "\n"


def rows(cell: Cell, runs: Runs) -> list[list[str]]:
    """Of one cell: the sides, then rmqpy's ratio to each of the others."""
    others = [side for side in runs if side != "rmqpy"]
    return [
        *report.load_rows(cell, runs),
        *(report.ratio_row(f"rmqpy / {side}", ratios(runs["rmqpy"], runs[side])) for side in others),
    ]


def ratios(ours: Sequence[RunMetrics], theirs: Sequence[RunMetrics]) -> dict[str, float]:
    """The median over the turns of each metric's ratio."""
    turns = list(zip(ours, theirs, strict=True))
    return {
        name: statistics.median(our[name] / their[name] for our, their in turns)
        for name in ours[0]
        if all(their.get(name) for their in theirs)
    }


def _measure(cell: Cell, sides: Sequence[Rmqpy | OtherSystem], pace: Pace) -> Runs:
    def prepare(side: Rmqpy | OtherSystem) -> None:
        side.start()
        warm(side, cell, pace, click.echo)

    # Of three brokers so different in speed none gets a burst of its size: all are loaded for the same time.
    timed = replace(cell, count=None)
    if cell.count is not None:
        # It would fill a small disk.
        pace = replace(pace, seconds=pace.seconds / 3, ramp=pace.ramp / 3)
    rounds = take_turns(sides, prepare, lambda side: load(side, timed, pace), pace, click.echo)
    return {side.name: [runs[number] for runs in rounds] for number, side in enumerate(sides)}


def _is_missing(kind: type[OtherSystem]) -> bool:
    if missing := kind.missing():
        click.echo(f"without {kind.name}: {missing}")
    return missing is not None


def _can(kind: type[OtherSystem], cell: Cell) -> bool:
    return kind.has_batches or "--batch" not in cell.options


def _title(side: Rmqpy | OtherSystem) -> str:
    return "rmqpy" if isinstance(side, Rmqpy) else side.version()


def _settings(side: Rmqpy | OtherSystem) -> str:
    return side.settings(is_sync_flush=False) if isinstance(side, Rmqpy) else side.settings()


if __name__ == "__main__":
    sys.exit(main())
