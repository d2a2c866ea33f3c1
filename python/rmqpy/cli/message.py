"""`rmqpy message`: get, find, trace, resend, export, decode-id."""

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import click

from rmqpy.cli.options import (
    cluster_options,
    complete_groups,
    complete_topics,
    connect,
    moment,
    options,
)
from rmqpy.cli.output import (
    Format,
    json_text,
    message_record,
    message_rows,
    output_option,
    show,
    time_text,
)

_TOPIC = click.argument("topic", shell_complete=complete_topics)
_TIMES = options(
    click.option("--from", "begin", type=moment, metavar="TIME|AGE", help="Stored then or later."),
    click.option("--to", "end", type=moment, metavar="TIME|AGE", help="Stored before."),
)


@click.group()
def command() -> None:
    """Single messages: by id, by key, by time; what became of one."""


@command.command()
@click.argument("message_id", metavar="ID")
@click.option("--topic", shell_complete=complete_topics, help="Needed for the id a producer was given.")
@cluster_options
@output_option
def get(message_id: str, topic: str | None, namesrv: str, timeout: float, output: Format) -> None:
    """The message ID, whole. The broker's id names the broker that is asked.

    \b
    rmqpy message get $MESSAGE_ID --topic orders
    """
    with connect(namesrv, timeout) as admin:
        message = admin.message(message_id, topic)
    show(message_record(message), output)


@command.command()
@_TOPIC
@click.option("--key", help="Messages that carry this key, newest first; otherwise all, queue by queue.")
@_TIMES
@click.option("--count", type=click.IntRange(1), default=32, show_default=True, help="Messages at most.")
@cluster_options
@output_option
def find(
    topic: str,
    key: str | None,
    begin: datetime | None,
    end: datetime | None,
    count: int,
    namesrv: str,
    timeout: float,
    output: Format,
) -> None:
    """Messages of TOPIC by key and time.

    \b
    rmqpy message find orders --key A-1
    rmqpy message find orders --from 10m --count 100
    """
    with connect(namesrv, timeout) as admin:
        if key is not None:
            found = admin.messages_by_key(topic, key, begin=begin, end=end, count=count)[:count]
        else:
            found = list(islice(admin.messages_between(topic, begin, end), count))
    show(message_rows(found, output), output)


@command.command()
@click.argument("message_id", metavar="ID")
@click.option(
    "--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Where its clients write traces."
)
@cluster_options
@output_option
def trace(message_id: str, trace_topic: str, namesrv: str, timeout: float, output: Format) -> None:
    """What clients did with the message that its producer gave this ID, as far as they trace.

    \b
    rmqpy message trace $MESSAGE_ID
    """
    with connect(namesrv, timeout) as admin:
        steps = admin.trace(message_id, trace_topic=trace_topic)
    rows = [
        {
            "at": None if step.at_ms is None else time_text(datetime.fromtimestamp(step.at_ms / 1_000, UTC)),
            "what": step.what,
            "group": step.group,
            "client": step.client,
            "topic": step.topic,
            "broker": step.broker,
            "attempt": step.attempt,
            "ms": step.took_ms,
            "outcome": step.outcome,
        }
        for step in steps
    ]
    show(rows, output)


@command.command()
@click.argument("message_id", metavar="ID")
@click.argument("group", shell_complete=complete_groups)
@click.option("--topic", shell_complete=complete_topics, help="Needed for the id a producer was given.")
@cluster_options
@output_option
def resend(
    message_id: str, group: str, topic: str | None, namesrv: str, timeout: float, output: Format
) -> None:
    """Let GROUP, and no other, get the message ID once more. A group that consumes in order, or broadcasts, will not.

    \b
    rmqpy message resend $MESSAGE_ID shipping --topic orders
    """
    with connect(namesrv, timeout) as admin:
        sent = admin.resend_message(message_id, group, topic)
    show({"message_id": message_id, "group": group, "sent_as": sent}, output)


@command.command()
@_TOPIC
@_TIMES
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Instead of standard output.")
@cluster_options
def export(
    topic: str,
    begin: datetime | None,
    end: datetime | None,
    file: Path | None,
    namesrv: str,
    timeout: float,
) -> None:
    """Write the messages of TOPIC as JSON, one a line, queue by queue.

    \b
    rmqpy message export orders --from 1h --file orders.jsonl
    """
    with connect(namesrv, timeout) as admin, click.open_file(str(file or "-"), "w", encoding="utf-8") as out:
        for message in admin.messages_between(topic, begin, end):
            out.write(json_text(message_record(message)) + "\n")


@command.command("decode-id")
@click.argument("message_id", metavar="ID")
@output_option
def decode_id(message_id: str, output: Format) -> None:
    """What the message id ID says. Asks nobody.

    \b
    rmqpy message decode-id 0A00000200002A9F0000000000000100
    """
    from rmqpy.protocol import ids

    match ids.decode(message_id):
        case ids.OffsetId(address, offset):
            show({"made_by": "broker", "address": address, "offset": offset}, output)
        case ids.UniqueId(host, process, made_at, counter):
            earliest, latest = (time_text(made_at + sign * ids.UNIQUE_ID_TOLERANCE) for sign in (-1, 1))
            show(
                {
                    "made_by": "producer",
                    "host": host,
                    "process": process,
                    "not_before": earliest,
                    "not_after": latest,
                    "counter": counter,
                },
                output,
            )
        case None:
            raise click.UsageError(
                f"{message_id!r} is no message id: 32 hex digits, or 56 with an IPv6 address"
            )
