"""`rmqpy dlq`: list, show, resend, export, purge dead letters."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import Rows, cluster_command, columns, confirm, confirmed, with_admin, yes_option
from rmqpy.cli.options import complete_groups, namespace
from rmqpy.cli.output import (
    RECORD_COLUMNS,
    Format,
    export_option,
    message_line,
    message_record,
    ms_text,
    output_option,
    show,
    time_text,
    write_lines,
)

if TYPE_CHECKING:
    from rmqpy._native import ReceivedMessage
    from rmqpy.admin.client import Admin

_GROUP = click.argument("group", shell_complete=complete_groups)


command = click.Group("dlq", help=COMMANDS["dlq"])


@command.command("list")
@cluster_command
@columns("group", "messages", "last")
def list_(admin: "Admin") -> Rows:
    """List the groups with dead letters, and their number.

    \b
    rmqpy dlq list
    """
    return [
        {"group": each.group, "messages": each.messages, "last": ms_text(each.last_ms)}
        for each in admin.dead_letters()
    ]


@command.command("show")
@_GROUP
@click.option(
    "--count", type=click.IntRange(1), default=20, show_default=True, help="Maximum messages to show."
)
@with_admin
@output_option
def show_(admin: "Admin", group: str, count: int, output: Format) -> None:
    """Show dead letters of GROUP, oldest first, and when dlq resend last sent them.

    \b
    rmqpy dlq show billing --count 5
    """
    row = message_line if output == "table" else _record
    rows = []
    for queue, message in islice(admin.dlq(group), count):
        resent = admin.resent(group, queue, message)
        rows.append({**row(message), "resent_at": time_text(resent[-1].stored_at) if resent else None})
    show(rows, output, columns=(*RECORD_COLUMNS, "resent_at"))


@command.command()
@_GROUP
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this message; may be repeated.")
@click.option("--all", "is_all", is_flag=True, help="All dead letters of GROUP.")
@click.option(
    "--origin", is_flag=True, help="Send to the original topic, for every group that subscribes to it."
)
@click.option("--again", is_flag=True, help="Include dead letters that were resent before.")
@yes_option
@cluster_command
@columns("message_id", "sent", "sent_as")
def resend(
    admin: "Admin", group: str, ids: tuple[str, ...], is_all: bool, origin: bool, again: bool, yes: bool
) -> Rows:
    """Resend dead letters of GROUP, to that group only. They stay in the dead-letter queue.

    Resent dead letters are marked and skipped the next time, unless --again is given.
    Workers (consumption by POP) receive them, too. A group that consumes in order does not: use --origin.

    \b
    rmqpy dlq resend billing --all --yes
    """
    if bool(ids) == is_all:
        raise click.UsageError("give --id for single messages or --all")
    found = [
        (queue, message)
        for queue, message in admin.dlq(group)
        if is_all or message.message_id in ids or message.offset_message_id in ids
    ]
    if missing := set(ids) - {
        name for _, each in found for name in (each.message_id, each.offset_message_id)
    }:
        raise click.ClickException(f"group {group!r} has no dead letter {', '.join(sorted(missing))}")
    if not yes:
        confirm(count=len(found))
    rows = []
    for queue, message in found:
        before = [] if again else admin.resent(group, queue, message)
        sent_as = (
            before[-1].offset_message_id if before else admin.resend(group, queue, message, to_origin=origin)
        )
        rows.append({"message_id": message.message_id, "sent": not before, "sent_as": sent_as})
    return rows


@command.command()
@_GROUP
@export_option
@with_admin
def export(admin: "Admin", group: str, file: Path | None) -> None:
    """Write the dead letters of GROUP as JSON lines.

    \b
    rmqpy dlq export billing --file letters.jsonl
    """
    write_lines(file, (_record(message) for _, message in admin.dlq(group)))


@command.command()
@_GROUP
@confirmed
@cluster_command
def purge(admin: "Admin", group: str) -> Rows:
    """Delete the dead letters of GROUP.

    \b
    rmqpy dlq purge billing --yes
    """
    return {"group": group, "messages": admin.purge_dead_letters(group)}


def _record(message: "ReceivedMessage") -> dict[str, Any]:
    """The message with its original topic and the number of deliveries."""
    record, first, space = message_record(message), message.properties.get("RETRY_TOPIC"), namespace()
    return record | {
        "topic": first if first is None or space is None else space.unwrap(first),
        # The message carries the number of the next delivery, which never happens.
        "attempts": message.delivery_attempt - 1,
    }
