"""Peer comparison command: runs rmqpy, Kafka, NATS JetStream and Redis streams in turns, each with its own load tool.

These brokers do another job, and their guarantees differ, as the report shows. Missing brokers and tools are left out.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks import memory
from benchmarks.cells import Cell
from benchmarks.interval import RunMetrics
from benchmarks.measure import Pace, take_turns
from benchmarks.peers import OTHER_SYSTEMS
from benchmarks.peers.cells import PEER_CELLS, named
from benchmarks.peers.ours import Ours
from benchmarks.peers.report import Runs, described, document
from benchmarks.peers.system import OtherSystem, Peer
from benchmarks.peers.watch import run
from benchmarks.processes import exit_on_sigterm
from benchmarks.revision import revision
from rmqpy import __version__
from rmqpy.load import machine

OUT = Path(__file__).resolve().parent.parent
FULL = Pace(pairs=4, seconds=2.5, warm_up=0, ramp=2.5, ramps_max=4, burst=1.0)
QUICK = Pace(pairs=2, seconds=0.3, warm_up=0, ramp=0.3, ramps_max=2, burst=1.0)
_FIRST_MESSAGES = 10_000
_QUICK_FILL_MESSAGES = 50_000
#: Bodies of one run, so that the page cache holds those of a cell.
_RUN_BYTES_MAX = 512 << 20
#: A run this much faster than all before means that the broker is still warming up.
_STILL_RISING = 1.05
#: Attempts of a turn that other processes disturb: the whole comparison takes a quarter of an hour.
_ATTEMPTS_MAX = 2


@click.command()
@click.option("--quick", is_flag=True, help="Two short runs of each, as a smoke test.")
@click.option("--cells", default="", metavar="NAME,…", help="Only these.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the stores, on a real disk; /tmp by default.",
)
def main(quick: bool, cells: str, folder: Path | None) -> None:
    """Compare rmqpy with Kafka, NATS JetStream and Redis streams, each loaded by its own tool, in turns."""
    try:
        chosen = named(cells)
    except KeyError as error:
        names = ", ".join(cell.name for cell in PEER_CELLS)
        raise click.BadParameter(f"no cell {error}; choose from {names}") from None
    kinds = [kind for kind in OTHER_SYSTEMS if not _is_missing(kind)]
    if not kinds:
        raise click.ClickException("no other broker is installed with its load tool")
    exit_on_sigterm()
    pace = QUICK if quick else FULL
    began = time.monotonic()
    results: dict[Cell, Runs] = {}
    with tempfile.TemporaryDirectory(prefix="rmqpy-bench-", dir=folder) as name:
        place = Path(name)
        for cell in chosen:
            click.echo(f"{cell.name}: {cell.title}  ({time.monotonic() - began:.0f} s)")
            if not quick:
                memory.fill(place)
            peers: list[Peer] = [Ours(place), *(kind(place) for kind in kinds if cell.name in kind.loads)]
            if len(peers) == 1:
                click.echo("  no tool of the others can express it")
                continue
            results[cell] = _measure(cell, peers, pace, place, quick, click.echo)
    # Described with folders of no machine.
    nowhere = Path("FOLDER")
    examples: list[Peer] = [Ours(nowhere), *(kind(nowhere) for kind in kinds)]
    sides = [described(peer, list(results)) for peer in examples]
    out = OUT.parent / "target" / "benchmarks" if quick else OUT
    out.mkdir(parents=True, exist_ok=True)
    text = document(results, sides, _about(quick, pace))
    (out / "peers.md").write_text(text, encoding="utf-8")
    click.echo(f"{time.monotonic() - began:.0f} s; see {out / 'peers.md'}")


def _measure(
    cell: Cell, peers: list[Peer], pace: Pace, place: Path, quick: bool, tell: Callable[[str], None]
) -> Runs:
    """Run a cell in turns; each run lasts about as long as the pace says."""
    counts: dict[str, int] = {}

    def prepare(peer: Peer) -> None:
        peer.start()
        least, most = 1, _RUN_BYTES_MAX // cell.body_bytes
        if cell.kind == "consume":
            by, messages = peer.fill
            messages = min(messages, _QUICK_FILL_MESSAGES) if quick else messages
            [sends] = named(by)
            run(peer, sends, messages, place)
            if not peer.has_endless_reader:
                # A rate of few messages would be that of the reader's start.
                least = most = messages
        counts[peer.name] = _warm(peer, cell, pace, (least, most), place, tell)

    def measure(peer: Peer) -> RunMetrics:
        return run(peer, cell, counts[peer.name], place)

    rounds = take_turns(peers, prepare, measure, pace, tell, attempts_max=1 if quick else _ATTEMPTS_MAX)
    return {peer.name: runs for peer, runs in zip(peers, zip(*rounds, strict=True), strict=True)}


def _warm(
    peer: Peer, cell: Cell, pace: Pace, bounds: tuple[int, int], place: Path, tell: Callable[[str], None]
) -> int:
    """Repeat the load until it gets no faster; return the number of messages of a measured run."""
    least, most = bounds
    count = max(least, min(_FIRST_MESSAGES, most))
    rates: list[float] = []
    while len(rates) < pace.ramps_max:
        rates.append(run(peer, cell, count, place)["throughput"])
        count = max(least, min(round(rates[-1] * pace.seconds), most))
        if len(rates) > 1 and rates[-1] < max(rates[:-1]) * _STILL_RISING:
            break
    tell(f"  {peer.name} is up and warm: " + ", ".join(f"{rate:,.0f}/s" for rate in rates))
    return count


def _about(quick: bool, pace: Pace) -> str:
    """Place, time and versions of the measurement."""
    facts = machine.facts()
    memory_gib = machine.memory_bytes() / 2**30
    return (
        f"`make bench NAME=peers{' BENCH=quick' if quick else ''}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, rmqpy "
        f"{__version__} at revision {revision()}. {facts['processor']}, {facts['cores']} cores, {memory_gib:.0f} "
        f"GiB, {facts['system']}. {pace.pairs} turns of about {pace.seconds:g} s a cell; all brokers in turn in one "
        "run, stores new for each cell."
    )


def _is_missing(kind: type[OtherSystem]) -> bool:
    if missing := kind.missing_tool():
        click.echo(f"without {kind.name}: {missing}")
    return missing is not None


if __name__ == "__main__":
    sys.exit(main())
