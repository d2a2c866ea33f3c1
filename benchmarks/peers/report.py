"""Peer report: formats the results, and what each tool can express, as Markdown."""

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks import report
from benchmarks.cells import Cell
from benchmarks.interval import RunMetrics
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.system import Peer
from benchmarks.servers import ROOT

Runs = Mapping[str, Sequence[RunMetrics]]
"""Side → its runs."""

#: Questions about a tool; each class has its answers.
ABILITIES = (
    "tool",
    "connections",
    "in flight on each",
    "batches",
    "acknowledgement of a send",
    "latency",
    "reads",
    "warm-up in a run",
)
#: The last column of the report of loads counts refusals. A tool that is refused ends the run.
_HEAD = (*report.LOAD_HEAD[:-3], "tool", "other")
_EXAMPLE_MESSAGES = 100_000
_LINE = "\n"


@dataclass(frozen=True)
class Side:
    """A broker and its tool, as the report describes them."""

    name: str
    version: str
    durability: str
    abilities: tuple[str, ...]
    #: The tool's command for each cell.
    commands: tuple[str, ...]
    settings: str


def described(peer: Peer, cells: Sequence[Cell]) -> Side:
    """Describe a peer, which need not be started."""
    return Side(
        peer.name,
        peer.version(),
        peer.durability,
        peer.abilities,
        tuple(_command(peer, cell) for cell in cells if cell.name in peer.loads),
        peer.configuration(),
    )


def document(results: Mapping[Cell, Runs], sides: Sequence[Side], about: str) -> str:
    """Format the report as Markdown."""
    answers = zip(*(side.abilities for side in sides), strict=True)
    parts = [
        "# Other brokers, each loaded by its own tool",
        f"{about} [How it is measured](README.md#other-brokers).",
        "A title such as 4 × 64 gives the connections, and the sends or batches in flight on each. Medians, in "
        "brackets the smallest and the largest run. Ratios are rmqpy's results to those of the other, medians over "
        "the turns. *Broker CPU per message*, *tool* and *other* (cores used by the tool and by all other processes) "
        "are measured from outside, over the whole run of the tool. A dash means that the tool reports no such "
        "value, or one below its resolution. A broker is missing in a cell that its tool cannot express.",
        report.table(_HEAD, [row for cell, runs in results.items() for row in rows(cell, runs)]),
        "## What each tool can express",
        report.table(
            ["", *(side.name for side in sides)],
            [[question, *row] for question, row in zip(ABILITIES, answers, strict=True)],
        ),
        "No tool can ask for a sync of the disk: that is a setting of the broker, and here each has its default. "
        "Latencies are those that the tool prints. They compare only where the tools time the same thing: single "
        "sends (1 × 1, 64 × 1), and pulls.",
        "## Durability of an answered send",
        report.table(["", "the message is"], [(side.name, side.durability) for side in sides]),
        "## Commands",
        f"{_EXAMPLE_MESSAGES:,} messages are an example: each run has as many as the broker takes in its time.",
        *(f"{side.version}:\n```\n{_LINE.join(side.commands)}\n```" for side in sides),
        "## Settings",
        f"Everything not named is each broker's default, but for Kafka's heap: `java {' '.join(Kafka.options)}`.",
        *(f"{side.version}:\n```\n{side.settings.strip()}\n```" for side in sides),
    ]
    return "\n\n".join(parts) + "\n"


def rows(cell: Cell, runs: Runs) -> list[list[str]]:
    """Rows of one cell: the sides, then rmqpy's ratio to each of the others."""
    others = [side for side in runs if side != "rmqpy"]
    ratio_rows = (report.ratio_row(f"rmqpy / {side}", ratios(runs["rmqpy"], runs[side])) for side in others)
    return [row[:-1] for row in (*report.load_rows(cell, runs), *ratio_rows)]


def ratios(ours: Sequence[RunMetrics], theirs: Sequence[RunMetrics]) -> dict[str, float]:
    """The median of each metric's ratio over the turns."""
    turns = list(zip(ours, theirs, strict=True))
    return {
        name: statistics.median(our[name] / their[name] for our, their in turns)
        for name in ours[0]
        if all(name in our for our in ours) and all(their.get(name) for their in theirs)
    }


def _command(peer: Peer, cell: Cell) -> str:
    """The tool's command, without this checkout's path and the body of a message."""
    words = ("BODY" if set(word) == {"x"} else word for word in peer.tool(cell, _EXAMPLE_MESSAGES))
    return shlex.join(words).replace(f"{ROOT}/", "")
