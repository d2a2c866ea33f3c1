"""`rmqpy message`: get, find, trace, resend, recheck, recall, timers, export, decode-id."""

from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import Rows, cluster_command, columns, printed, with_admin
from rmqpy.cli.options import client_config, cluster_options, complete_groups, complete_topics, options
from rmqpy.cli.output import (
    RECORD_COLUMNS,
    Format,
    export_option,
    message_record,
    message_rows,
    ms_text,
    output_option,
    show,
    time_text,
    write_lines,
)
from rmqpy.cli.values import moment

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin

_ID = click.argument("message_id", metavar="ID")
_TOPIC_OF_ID = click.option(
    "--topic", shell_complete=complete_topics, help="Required for ids from producers."
)
_TOPIC = click.argument("topic", shell_complete=complete_topics)
_TIMES = options(
    click.option("--from", "begin", type=moment, metavar="TIME|AGE", help="Stored at or after this time."),
    click.option("--to", "end", type=moment, metavar="TIME|AGE", help="Stored before."),
)


command = click.Group("message", help=COMMANDS["message"])


@command.command()
@_ID
@_TOPIC_OF_ID
@cluster_command
def get(admin: "Admin", message_id: str, topic: str | None) -> Rows:
    """Show message ID in full. A broker's id contains the address of its broker.

    \b
    rmqpy message get $MESSAGE_ID --topic orders
    """
    return message_record(admin.message(message_id, topic))


@command.command()
@_TOPIC
@click.option("--key", help="Messages with this key, newest first. Default: all messages by queue.")
@_TIMES
@click.option(
    "--count", type=click.IntRange(1), default=32, show_default=True, help="Maximum messages to show."
)
@with_admin
@output_option
def find(
    admin: "Admin",
    topic: str,
    key: str | None,
    begin: datetime | None,
    end: datetime | None,
    count: int,
    output: Format,
) -> None:
    """Find messages of TOPIC by key and time.

    \b
    rmqpy message find orders --key A-1
    rmqpy message find orders --from 10m --count 100
    """
    if key is not None:
        found = admin.messages_by_key(topic, key, begin=begin, end=end, count=count)[:count]
        if not found:
            from rmqpy.errors import MessageNotFound

            raise MessageNotFound(f"no message of {topic!r} has the key {key!r}", topic=topic)
    else:
        found = list(islice(admin.messages_between(topic, begin, end), count))
    show(message_rows(found, output), output, columns=RECORD_COLUMNS)


@command.command()
@_ID
@click.option(
    "--trace-topic",
    default="RMQ_SYS_TRACE_TOPIC",
    show_default=True,
    help="Topic that clients write traces to.",
)
@cluster_command
@columns("at", "what", "group", "client", "topic", "broker", "attempt", "ms", "outcome")
def trace(admin: "Admin", message_id: str, trace_topic: str) -> Rows:
    """Show the traces of message ID, written by clients that trace. ID is the producer's id.

    \b
    rmqpy message trace $MESSAGE_ID
    """
    return [
        {
            "at": ms_text(step.at_ms),
            "what": step.what,
            "group": step.group,
            "client": step.client,
            "topic": step.topic,
            "broker": step.broker,
            "attempt": step.attempt,
            "ms": step.took_ms,
            "outcome": step.outcome,
        }
        for step in admin.trace(message_id, trace_topic=trace_topic)
    ]


@command.command()
@_ID
@click.argument("group", shell_complete=complete_groups)
@_TOPIC_OF_ID
@cluster_command
def resend(admin: "Admin", message_id: str, group: str, topic: str | None) -> Rows:
    """Resend message ID to GROUP only. Groups that broadcast, consume in order or by POP do not get it.

    \b
    rmqpy message resend $MESSAGE_ID shipping --topic orders
    """
    sent = admin.resend_message(message_id, group, topic)
    return {"message_id": message_id, "group": group, "sent_as": sent}


@command.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@cluster_command
@columns("topic", "waiting", "5s", "1m", "5m", "15m", "1h", "4h", "8h", "1d", "later")
def timers(admin: "Admin", topic: str | None) -> Rows:
    """Count pending timed messages of TOPIC or of all topics by the time until they are due.

    \b
    rmqpy message timers
    rmqpy message timers reminders
    """
    from rmqpy.protocol.requests.timers import DUE_WITHIN_S

    names = ("5s", "1m", "5m", "15m", "1h", "4h", "8h", "1d", "later")
    bounds = list(zip(names, (*DUE_WITHIN_S, None), strict=True))
    return [
        {"topic": found.topic, "waiting": found.waiting}
        | {name: found.due_within.get(bound) for name, bound in bounds}
        for found in admin.pending_timers(topic)
    ]


@command.command()
@_TOPIC
@click.argument("handle")
@cluster_options
@printed
def recall(topic: str, handle: str, namesrv: str, timeout: float) -> Rows:
    """Recall a timed message to TOPIC before its delivery. HANDLE comes from the send result.

    \b
    rmqpy message recall reminders $RECALL_HANDLE
    """
    from rmqpy.client.producer.producer import Producer

    with Producer(client_config(namesrv, timeout), send_timeout=timeout) as producer:
        return {"recalled": producer.recall(topic, handle), "topic": topic}


@command.command()
@_ID
@cluster_command
def recheck(admin: "Admin", message_id: str) -> Rows:
    """Ask producers again about half message ID, which a broker gave up after too many checks.

    Such messages are in TRANS_CHECK_MAX_TIME_TOPIC: list them with `message find`. Each can be rechecked once.

    \b
    rmqpy message recheck $HALF_ID
    """
    admin.recheck_transaction(message_id)
    return {"message_id": message_id}


@command.command()
@_TOPIC
@_TIMES
@export_option
@with_admin
def export(
    admin: "Admin", topic: str, begin: datetime | None, end: datetime | None, file: Path | None
) -> None:
    """Write the messages of TOPIC as JSON lines, queue by queue.

    \b
    rmqpy message export orders --from 1h --file orders.jsonl
    """
    write_lines(file, map(message_record, admin.messages_between(topic, begin, end)))


@command.command("decode-id")
@_ID
@printed
def decode_id(message_id: str) -> Rows:
    """Decode message id ID. Contacts no server.

    \b
    rmqpy message decode-id 0A00000200002A9F0000000000000100
    """
    from rmqpy.protocol import ids

    match ids.decode(message_id):
        case ids.OffsetId(address, offset):
            return {"made_by": "broker", "address": address, "offset": offset}
        case ids.UniqueId(host, process, made_at, counter):
            earliest, latest = (time_text(made_at + sign * ids.UNIQUE_ID_TOLERANCE) for sign in (-1, 1))
            return {
                "made_by": "producer",
                "host": host,
                "process": process,
                "not_before": earliest,
                "not_after": latest,
                "counter": counter,
            }
        case None:
            raise click.UsageError(
                f"{message_id!r} is not a message id: it has 32 hex digits, or 56 with an IPv6 address"
            )
