"""`rmqpy sql`: a query over topics, answered by DuckDB in this process."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from rmqpy.cli import terminal
from rmqpy.cli.bodies import body_arguments, body_options
from rmqpy.cli.options import client_config, cluster_options
from rmqpy.cli.output import Format, Record, json_text, note, output_option, show

if TYPE_CHECKING:
    from rmqpy.tables.topic_read import TopicRead

#: Rows of a result in memory at a time.
_PAGE: Final = 1000
#: Rows that a table on a terminal shows.
_TABLE_ROWS: Final = 10_000


@click.command()
@click.argument("query")
@click.option("--since", metavar="TIME|AGE", help="Only messages stored since: 2026-01-31T12:00, 1h.")
@click.option("--until", metavar="TIME|AGE", help="Only messages stored before.")
@click.option(
    "--filter", "tags", default="*", help="Only messages with one of these tags: 'paid || refunded'."
)
@body_options
@click.option("--memory", metavar="SIZE", help="Memory of DuckDB, '2GB'; beyond it writes to --temporary.")
@click.option("--temporary", metavar="FOLDER", help="Folder for what exceeds the memory. [default: .tmp]")
@output_option
@cluster_options
def command(
    query: str,
    since: str | None,
    until: str | None,
    tags: str,
    memory: str | None,
    temporary: str | None,
    output: Format,
    namesrv: str,
    timeout: float,
    **given: Any,
) -> None:
    """Answer QUERY, in which each topic is a table of the messages that it holds now.

    \b
    rmqpy sql "select tags, count(*) from orders group by 1"
    rmqpy sql "select body.customer, sum(body.price) from orders group by 1" --body-format json --since 1h
    rmqpy sql "copy (select * from orders) to 'orders.parquet'"

    Columns: topic, brokerName, queueId, queueOffset, msgId, tags, keys, body, properties, flag, bornTimestamp,
    storeTimestamp. Only columns that the query uses are decoded. Quote names with other characters: "order-events".
    Needs DuckDB: pip install 'rmqpy[sql]'.
    """
    from rmqpy.tables.database import Topics
    from rmqpy.tables.topic_read import read_topic

    config, bodies = client_config(namesrv, timeout), body_arguments(given)
    with terminal.progress("read") as show_progress:
        progress = _Progress(show_progress)

        def read(topic: str) -> "TopicRead":
            show = progress.of(topic)
            return read_topic(topic, config, since=since, until=until, tags=tags, progress=show, **bodies)

        topics = Topics(read, memory_limit=memory, temporary=temporary)
        pages = topics.pages(query, _PAGE)
        names = next(pages)
        first = next(pages, ())
    _print(names, first, pages, output)
    for topic, each in topics.reads.items():
        if (counts := each.counts).corrupt:
            note(
                f"{topic}: {counts.corrupt:,} of {counts.corrupt + counts.decoded:,} bodies cannot be decoded, "
                f"the first: {counts.first}"
            )


class _Progress:
    """The progress of all topics of a query together."""

    def __init__(self, show: terminal.Show) -> None:
        self._show = show
        self._topics: dict[str, tuple[int, int]] = {}

    def of(self, topic: str) -> Any:
        """Return the callback of one topic."""
        return partial(self._note, topic)

    def _note(self, topic: str, done: int, total: int) -> None:
        self._topics[topic] = (done, total)
        done = sum(each for each, _ in self._topics.values())
        total = sum(each for _, each in self._topics.values())
        self._show(done, total, lambda: f"{done:,} of {total:,} messages")


def _print(
    names: Sequence[str], first: Sequence[Sequence[Any]], pages: Iterator[Any], output: Format
) -> None:
    rows = _rows(names, first, pages)
    if output == "jsonl":
        for row in rows:
            click.echo(json_text(row))
    elif output == "json":
        opening = "[\n"
        for row in rows:
            click.echo(opening + json_text(row), nl=False)
            opening = ",\n"
        click.echo("[]" if opening == "[\n" else "\n]")
    elif output == "csv":
        import csv

        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(names)
        lines.writerows([_cell(value) for value in row.values()] for row in rows)
    else:
        shown: list[Record] = []
        for row in rows:
            if len(shown) == _TABLE_ROWS and output in ("table", "wide"):
                note(f"the first {_TABLE_ROWS:,} rows; -o csv or jsonl prints all")
                break
            shown.append(row)
        show(shown, output, columns=names)


def _rows(
    names: Sequence[str], first: Sequence[Sequence[Any]], pages: Iterator[Any]
) -> Iterator[dict[str, Any]]:
    page: Sequence[Sequence[Any]] | None = first
    while page:
        for values in page:
            yield dict(zip(names, map(_plain, values), strict=True))
        page = next(pages, None)


def _plain(value: Any) -> Any:
    """Return bytes as text, or in base64 if they are not text, also within structures."""
    match value:
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            try:
                return data.decode()
            except UnicodeDecodeError:
                import base64

                return base64.b64encode(data).decode("ascii")
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def _cell(value: Any) -> Any:
    return json_text(value) if isinstance(value, dict | list) else value
