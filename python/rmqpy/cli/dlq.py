"""`rmqpy dlq`: list, show, resend, export dead letters."""

import base64
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqpy.cli.options import asking, cluster_options, wait_for
from rmqpy.cli.output import Format, output_option, show

if TYPE_CHECKING:
    from rmqpy._native import ReceivedMessage
    from rmqpy.admin.dead_letters import DeadLetters
    from rmqpy.admin.topics import QueueState

#: Of a body in a table; JSON has all of it.
_BODY_CHARS_MAX = 40


@click.group()
def command() -> None:
    """Dead letters: what groups gave up on."""


@command.command("list")
@cluster_options
@output_option
def list_(namesrv: str, timeout: float, output: Format) -> None:
    """Groups that gave up on something, and on how much."""
    with _dead_letters(namesrv, timeout) as letters:
        piles = wait_for(letters.piles())
    show(
        [{"group": pile.group, "messages": pile.messages, "last": _time(pile.last_ms)} for pile in piles],
        output,
    )


@command.command("show")
@click.argument("group")
@click.option("--count", type=click.IntRange(1), default=20, show_default=True, help="Messages at most.")
@cluster_options
@output_option
def show_(group: str, count: int, namesrv: str, timeout: float, output: Format) -> None:
    """What GROUP gave up on, oldest first."""
    with _dead_letters(namesrv, timeout) as letters:
        rows = [_row(message) for _, message in wait_for(_first(letters.messages(group), count))]
    if output == "table":
        for row in rows:
            row["body"] = str(row.get("body", row.get("body_base64")))[:_BODY_CHARS_MAX]
            row.pop("body_base64", None)
            row.pop("properties")
    show(rows, output)


@command.command()
@click.argument("group")
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
    """
    if bool(ids) == is_all:
        raise click.UsageError("name messages with --id, or all of them with --all")
    with _dead_letters(namesrv, timeout) as letters:
        found = [
            (queue, message)
            for queue, message in wait_for(_first(letters.messages(group), None))
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
            sent = wait_for(letters.resend(group, queue, message, to_origin=origin))
            rows.append({"message_id": message.message_id, "sent_as": sent})
    show(rows, output)


@command.command()
@click.argument("group")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Instead of standard output.")
@cluster_options
def export(group: str, file: Path | None, namesrv: str, timeout: float) -> None:
    """Write the dead letters of GROUP as JSON, one message a line."""
    with (
        _dead_letters(namesrv, timeout) as letters,
        open(file, "w", encoding="utf-8") if file else _standard_output() as out,
    ):

        async def write() -> None:
            async for _, message in letters.messages(group):
                out.write(json.dumps(_row(message), ensure_ascii=False) + "\n")

        wait_for(write())


async def _first(
    messages: "AsyncIterator[tuple[QueueState, ReceivedMessage]]", count: int | None
) -> "list[tuple[QueueState, ReceivedMessage]]":
    found: list[tuple[QueueState, ReceivedMessage]] = []
    if count is None or count > 0:
        async for each in messages:
            found.append(each)
            if len(found) == count:
                break
    return found


def _row(message: "ReceivedMessage") -> dict[str, Any]:
    row: dict[str, Any] = {
        "message_id": message.message_id,
        "topic": message.properties.get("RETRY_TOPIC"),
        "attempts": message.delivery_attempt,
        "stored_at": message.stored_at.isoformat(timespec="milliseconds"),
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
    }
    try:
        row["body"] = message.text()
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(message.body).decode()
    return row


def _time(ms: int) -> str | None:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds") if ms > 0 else None


@contextmanager
def _standard_output() -> Iterator[Any]:
    yield sys.stdout


@contextmanager
def _dead_letters(namesrv: str, timeout: float) -> "Iterator[DeadLetters]":
    """The cluster's dead letters, over connections that last as long as the command."""
    from rmqpy.admin.dead_letters import DeadLetters
    from rmqpy.admin.topics import Topics

    with asking(namesrv, timeout) as (caller, name_servers):
        yield DeadLetters(caller, Topics(caller, name_servers, timeout=timeout), timeout=timeout)
