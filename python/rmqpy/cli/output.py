"""How results are printed: an aligned table for people, JSON for programs.

Keys of the JSON are stable. A list of rows becomes a table with a line of headings, one record becomes two columns.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import click

Format = Literal["table", "json", "jsonl"]
Record = Mapping[str, Any]
_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(command: _Command) -> _Command:
    """Add `-o/--output`, handed to the command as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "jsonl"]),
        default="table",
        show_default=True,
        help="How to print the result; jsonl is one JSON object per line.",
    )(command)


def show(result: Record | Sequence[Record], output: Format) -> None:
    """Print one record, or rows of the same keys."""
    if output == "json":
        click.echo(json.dumps(result, ensure_ascii=False, indent=2, default=str))
    elif isinstance(result, Mapping):
        if output == "jsonl":
            click.echo(json.dumps(result, ensure_ascii=False, default=str))
        else:
            click.echo(_columns((key, _text(value)) for key, value in result.items()))
    elif output == "jsonl":
        for row in result:
            click.echo(json.dumps(row, ensure_ascii=False, default=str))
    elif result:
        headings = list(result[0])
        rows = ([_text(row[key]) for key in headings] for row in result)
        click.echo(_columns([[heading.upper() for heading in headings], *rows]))


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _columns(rows: Iterable[Sequence[str]]) -> str:
    """Rows as lines, every column as wide as its longest cell."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
