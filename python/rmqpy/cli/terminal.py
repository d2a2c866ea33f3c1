"""Tables in colour and progress bars, drawn by rich.

Invariant: rich is imported only when writing to a terminal, since its import takes longer than most commands. Threads:
the command's own.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Final

from rmqpy.cli.options import flag

if TYPE_CHECKING:
    from rich.console import Console

#: Takes done and total (0: unknown), and figures as text. Cheap enough for every message.
Show = Callable[[int, int, Callable[[], str]], None]

#: Columns that no row needs are omitted: a table is as wide as its rows.
_WIDE: Final = 1 << 30
#: The minimum interval between two updates.
_SHOW_S: Final = 0.1
#: Colours of words in status columns.
_STYLES: Final = {"ok": "green", "warn": "yellow", "bad": "bold red", "damage": "bold red"}
_LEVEL: Final = "level"
#: Columns that report problems.
_FAULTS: Final = frozenset({"fault"})


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] | None, *, is_wide: bool
) -> None:
    """Print rows with headings on standard output, and a last row with totals.

    Cells wrap where the terminal is too narrow; with `is_wide` the terminal wraps whole lines.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_footer=total is not None)
    for at, heading in enumerate(headings):
        table.add_column(
            Text(heading.upper()),
            Text(total[at]) if total is not None else "",
            overflow="ignore" if is_wide else "fold",
            no_wrap=is_wide,
        )
    for row in rows:
        table.add_row(*(Text(cell, _style(name, cell)) for name, cell in zip(headings, row, strict=True)))
    _console(sys.stdout, width=_WIDE if is_wide else None).print(table, crop=False, soft_wrap=is_wide)


def print_record(rows: Sequence[tuple[str, str]]) -> None:
    """Print the names and values of one record on standard output."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in rows:
        table.add_row(Text(name, "bold"), Text(value, _style(name, value), overflow="fold"))
    _console(sys.stdout).print(table)


def progress(name: str) -> AbstractContextManager[Show]:
    """Show progress on standard error until the end of the work; nothing if that is not a terminal."""
    if not sys.stderr.isatty() or flag("quiet"):
        return nullcontext(lambda done, total, figures: None)
    return _shown(name)


@contextmanager
def _shown(name: str) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_console(sys.stderr), transient=True) as shown:
        task = shown.add_task(name, total=None, figures="")
        due = 0.0

        def show(done: int, total: int, figures: Callable[[], str]) -> None:
            nonlocal due
            if (now := time.monotonic()) >= due:
                due = now + _SHOW_S
                shown.update(task, completed=done, total=total or None, figures=figures())

        yield show


def _style(name: str, cell: str) -> str:
    if name in _FAULTS:
        return "" if cell == "-" else _STYLES["bad"]
    return _STYLES.get(cell, "") if name == _LEVEL else ""


def _console(file: IO[str], *, width: int | None = None) -> "Console":
    from rich.console import Console

    no_color = flag("no_color") or None
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False, no_color=no_color)
