"""Commands that repeat until Ctrl-C."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import click

from rmqpy.cli.options import options
from rmqpy.cli.output import Record, lines_option, show

_Command = TypeVar("_Command", bound=Callable[..., Any])


def watch_options(command: _Command) -> _Command:
    """Add `--every`, `--rounds` and `-o/--output`."""
    return options(
        click.option(
            "--every",
            type=click.FloatRange(min=0.1),
            default=2.0,
            show_default=True,
            metavar="SECONDS",
            help="Interval between rounds.",
        ),
        click.option(
            "--rounds", type=click.IntRange(1), help="Stop after this many rounds. Default: at Ctrl-C."
        ),
        lines_option,
    )(command)


def looks(every: float, rounds: int | None) -> Iterator[float]:
    """Yield the time of each round in seconds, the first one immediately."""
    done = 0
    while True:
        began = time.monotonic()
        yield began
        done += 1
        if done == rounds:
            return
        time.sleep(max(0.0, began + every - time.monotonic()))


def show_again(rows: Sequence[Record], output: Literal["table", "jsonl"]) -> None:
    """Print the current rows, on a terminal in place of the previous ones."""
    if output == "table" and sys.stdout.isatty():
        click.clear()
    show(rows, output)
    if output == "table":
        click.echo()
