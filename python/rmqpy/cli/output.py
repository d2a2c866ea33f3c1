"""Printed results: a table for people, JSON for programs, notes on standard error.

JSON keys are stable. A list of rows becomes a table with headings, one record becomes two columns. Tables have
colours on a terminal; a pipe or file gets the same cells in plain aligned columns, without importing rich.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqpy.cli import terminal
from rmqpy.cli.escapes import escaped_json, printable_text
from rmqpy.cli.options import flag, option_value
from rmqpy.cli.template import PREFIX, OutputFormat, filled, plain
from rmqpy.clock import date_of

if TYPE_CHECKING:
    from rmqpy._native import ReceivedMessage

#: A word of `output_option`, or `template=…`.
Format = str
Record = Mapping[str, Any]
#: Keys of a body: as text, and as base64 if it is not text.
_BODIES = frozenset({"body", "body_base64"})
#: Keys of a message with a text body, in order.
RECORD_COLUMNS = (
    *("topic", "broker", "queue", "offset", "message_id", "offset_message_id", "tag", "keys"),
    *("properties", "born_at", "stored_at", "body"),
)
#: Keys of `message_record`; dead letters add their number of attempts.
RECORD_KEYS = frozenset({*RECORD_COLUMNS, "attempts", *_BODIES})
#: Length of a body in a table; JSON has all of it.
_BODY_CHARS_MAX = 40

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _output(formats: "click.Choice[str]", default: Format, text: str) -> Callable[[_Command], _Command]:
    return click.option(
        "-o",
        "--output",
        type=formats,
        default=default,
        show_default=True,
        callback=option_value,
        help=text,
    )


#: `-o/--output`, passed to the command as `output`.
output_option = _output(
    OutputFormat(["table", "wide", "json", "jsonl", "csv"]),
    "table",
    "Output format: wide does not truncate, jsonl prints one JSON object a line, csv has headings, "
    "template='{KEY} …' fills in JSON keys.",
)

#: The same for a command that prints repeatedly.
lines_option = _output(
    click.Choice(["table", "jsonl"]),
    "table",
    "Output format of each round; jsonl prints one JSON object a line.",
)

#: The same for a command that prints messages as they arrive.
messages_option = _output(
    OutputFormat(["text", "json", "jsonl"]),
    "text",
    "text prints bodies, json one array of messages, jsonl one message a line, or "
    "template='{offset} {body}'.",
)

export_option = click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), help="Write here instead of standard output."
)


def write_lines(file: Path | None, records: Iterable[Record]) -> None:
    """Write JSON lines to a file, or to standard output."""
    began, size = time.monotonic(), 0
    with (
        click.open_file(str(file or "-"), "w", encoding="utf-8") as out,
        terminal.progress("export") as show_progress,
    ):
        for count, record in enumerate(records, 1):
            size += out.write(json_text(record) + "\n")
            show_progress(0, 0, partial(_export_figures, count, size, began))


def _export_figures(count: int, size: int, began: float) -> str:
    seconds = time.monotonic() - began
    return f"{count:,} messages, {size / 1e6:,.1f} MB, {size / seconds / 1e6:,.1f} MB/s"


def show(
    result: Record | Sequence[Record],
    output: Format,
    *,
    totals: Callable[[], Record] | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Print one record, or rows of the same keys. A table ends with `totals`, which other formats omit; a note
    replaces an empty table. CSV without rows prints the headings of `columns`."""
    if output == "json":
        click.echo(json_text(result, indent=2))
    elif output == "csv":
        _comma_separated([result] if isinstance(result, Mapping) else result, columns)
    elif output.startswith(PREFIX):
        for line in _filled(output, [result] if isinstance(result, Mapping) else result):
            click.echo(line)
    elif output == "jsonl":
        for row in [result] if isinstance(result, Mapping) else result:
            click.echo(json_text(row))
    elif isinstance(result, Mapping):
        _print_record([(key, _text(value)) for key, value in result.items()])
    elif result:
        _print_rows(result, totals() if totals else None, is_wide=output == "wide")
    else:
        note("nothing found")


def _print_rows(rows: Sequence[Record], totals: Record | None, *, is_wide: bool) -> None:
    headings = _headings(rows)
    cells = [[_text(row.get(key)) for key in headings] for row in rows]
    total = None if totals is None else [_text(totals.get(key, "")) for key in headings]
    if sys.stdout.isatty():
        terminal.print_table(headings, cells, total, is_wide=is_wide)
    else:
        lines = [[heading.upper() for heading in headings], *cells, *([total] if total else ())]
        click.echo(_columns(lines))


def _print_record(rows: Sequence[tuple[str, str]]) -> None:
    if sys.stdout.isatty():
        terminal.print_record(rows)
    else:
        click.echo(_columns(rows))


def note(text: str) -> None:
    """Print a note on standard error, unless `rmqpy -q`. For the command's own thread."""
    note_printer()(text)


def note_printer() -> Callable[[str], None]:
    """`note` for any thread."""
    is_quiet = flag("quiet")

    def print_note(text: str) -> None:
        if not is_quiet:
            click.echo(text, err=True)

    return print_note


def message_record(message: "ReceivedMessage") -> dict[str, Any]:
    """Return the whole message, with the body as text, or in base64 if it is not text."""
    record: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.queue.broker,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "born_at": time_text(message.born_at),
        "stored_at": time_text(message.stored_at),
    }
    try:
        record["body"] = message.text()
    except UnicodeDecodeError:
        import base64

        record["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return record


@contextmanager
def message_printer(output: Format) -> "Iterator[Callable[[ReceivedMessage], None]]":
    """Prints messages as they arrive, in a format of `messages_option`. A JSON array is closed however the command
    ends, and omitted if the command failed before its first message."""
    if output != "json":
        yield lambda message: click.echo(_message_text(message, output))
        return
    count = 0

    def print_element(message: "ReceivedMessage") -> None:
        nonlocal count
        text = (",\n" if count else "[\n") + json_text(message_record(message))
        # First, since a reader may press Ctrl-C as soon as it sees the text.
        count += 1
        click.echo(text, nl=False)

    try:
        yield print_element
        if not count:
            click.echo("[]")
    finally:
        if count:
            click.echo("\n]")


def _message_text(message: "ReceivedMessage", output: Format) -> str | bytes:
    if output == "text":
        return message.body
    record = message_record(message)
    if output == "jsonl":
        return json_text(record)
    (line,) = _filled(output, [record])
    return line


def message_rows(messages: "Iterable[ReceivedMessage]", output: Format) -> list[Record]:
    """Messages for `show`: whole, or shortened for a table."""
    return [(message_line if output == "table" else message_record)(message) for message in messages]


def message_line(message: "ReceivedMessage") -> dict[str, Any]:
    """The message, shortened for a table."""
    record = message_record(message)
    body = str(record.get("body", record.get("body_base64")))
    return {
        **{
            name: record[name]
            for name in ("broker", "queue", "offset", "message_id", "tag", "keys", "stored_at")
        },
        "body": body[:_BODY_CHARS_MAX],
    }


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return JSON that a terminal prints as it is; values without a JSON type become text."""
    import json

    return escaped_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def time_text(moment: datetime) -> str:
    """A time as in JSON."""
    return moment.isoformat(timespec="milliseconds")


def ms_text(ms: int | None) -> str | None:
    """The same for ms since the epoch, or None."""
    return time_text(date_of(ms)) if ms and ms > 0 else None


def _comma_separated(rows: Sequence[Record], columns: Sequence[str]) -> None:
    if headings := _headings(rows) or list(columns):
        import csv

        lines = csv.DictWriter(sys.stdout, fieldnames=headings, lineterminator="\n")
        lines.writeheader()
        lines.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _filled(template: Format, rows: Sequence[Record]) -> Iterator[str]:
    """Lines of a template. The missing one of the two body keys is empty."""
    keys = _headings(rows)
    if not _BODIES.isdisjoint(keys):
        keys += _BODIES
    return filled(template, rows, keys)


def _headings(rows: Sequence[Record]) -> list[str]:
    """The keys of all rows; a body that is not text has its own key."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _cell(value: object) -> object:
    """Empty for None, so that programs see an empty cell."""
    return value if value is None else plain(value)


def _columns(rows: Iterable[Sequence[str]]) -> str:
    """Rows as lines with aligned columns."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _text(value: object) -> str:
    """A value as a cell. Only the sum of a column without one is empty."""
    return "" if value == "" else printable_text(plain(value) or "-")
