"""`rmqpy dlq`: list, show, resend, export, purge dead letters."""

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqpy.cli.options import cluster_options, complete_groups, connect
from rmqpy.cli.output import (
    Format,
    json_text,
    message_line,
    message_record,
    output_option,
    show,
    time_text,
)

if TYPE_CHECKING:
    from rmqpy._native import ReceivedMessage

_GROUP = click.argument("group", shell_complete=complete_groups)


@click.group()
def command() -> None:
    """Dead letters: what groups gave up on."""


@command.command("list")
@cluster_options
@output_option
def list_(namesrv: str, timeout: float, output: Format) -> None:
    """Groups that gave up on something, and on how much.

    \b
    rmqpy dlq list
    """
    with connect(namesrv, timeout) as admin:
        piles = admin.dead_letters()
    show(
        [{"group": pile.group, "messages": pile.messages, "last": _time(pile.last_ms)} for pile in piles],
        output,
    )


@command.command("show")
@_GROUP
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Messages at most.")
@cluster_options
@output_option
def show_(group: str, count: int, namesrv: str, timeout: float, output: Format) -> None:
    """What GROUP gave up on, oldest first.

    \b
    rmqpy dlq show billing --count 5
    """
    with connect(namesrv, timeout) as admin:
        found = [message for _, message in islice(admin.dlq(group), count)]
    row = message_line if output == "table" else _record
    show([row(message) for message in found], output)


@command.command()
@_GROUP
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this message; may be repeated.")
@click.option("--all", "is_all", is_flag=True, help="Everything that GROUP gave up on.")
@click.option(
    "--origin", is_flag=True, help="To the topic of the first send, for every group that subscribes to it."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
@output_option
def resend(
    group: str,
    ids: tuple[str, ...],
    is_all: bool,
    origin: bool,
    yes: bool,
    namesrv: str,
    timeout: float,
    output: Format,
) -> None:
    """Send dead letters of GROUP again, to the group alone. They stay among the dead letters, too.

    A group that consumes in order gets nothing from its retry topic: use --origin.

    \b
    rmqpy dlq resend billing --all --yes
    """
    if bool(ids) == is_all:
        raise click.UsageError("name messages with --id, or all of them with --all")
    with connect(namesrv, timeout) as admin:
        found = [
            (queue, message)
            for queue, message in admin.dlq(group)
            if is_all or message.message_id in ids or message.offset_message_id in ids
        ]
        if missing := set(ids) - {
            name for _, each in found for name in (each.message_id, each.offset_message_id)
        }:
            raise click.ClickException(f"no dead letter of {group!r} is called {', '.join(sorted(missing))}")
        if not yes:
            click.confirm(f"Send {len(found)} messages again?", abort=True, err=True)
        rows = []
        for queue, message in found:
            sent = admin.resend(group, queue, message, to_origin=origin)
            rows.append({"message_id": message.message_id, "sent_as": sent})
    show(rows, output)


@command.command()
@_GROUP
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Instead of standard output.")
@cluster_options
def export(group: str, file: Path | None, namesrv: str, timeout: float) -> None:
    """Write the dead letters of GROUP as JSON, one message a line.

    \b
    rmqpy dlq export billing --file letters.jsonl
    """
    with connect(namesrv, timeout) as admin, click.open_file(str(file or "-"), "w", encoding="utf-8") as out:
        for _, message in admin.dlq(group):
            out.write(json_text(_record(message)) + "\n")


@command.command()
@_GROUP
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
@output_option
def purge(group: str, yes: bool, namesrv: str, timeout: float, output: Format) -> None:
    """Give up the dead letters of GROUP for good.

    \b
    rmqpy dlq purge billing --yes
    """
    if not yes:
        click.confirm(f"Give up the dead letters of {group!r}?", abort=True, err=True)
    with connect(namesrv, timeout) as admin:
        count = admin.purge_dead_letters(group)
    show({"group": group, "messages": count}, output)


def _record(message: "ReceivedMessage") -> dict[str, Any]:
    """The message with the topic it was sent to first, and how often it was tried."""
    record = message_record(message)
    return record | {
        "topic": message.properties.get("RETRY_TOPIC"),
        "attempts": message.delivery_attempt,
    }


def _time(ms: int) -> str | None:
    return time_text(datetime.fromtimestamp(ms / 1_000, UTC)) if ms > 0 else None
