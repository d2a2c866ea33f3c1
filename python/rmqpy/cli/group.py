"""`rmqpy group`: list, describe, create, alter, delete, lag, watch, members, reset, skip, clone."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import (
    Rows,
    check_given,
    cluster_command,
    columns,
    confirm,
    confirmed,
    with_admin,
    yes_option,
)
from rmqpy.cli.options import complete_brokers, complete_groups, complete_topics, options
from rmqpy.cli.output import Format, note, output_option, show, time_text
from rmqpy.cli.values import place
from rmqpy.cli.watching import looks, show_again, watch_options

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.admin.groups import Move, Place, Progress

_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
_GROUP = click.argument("name", shell_complete=complete_groups)
_TOPIC = click.option(
    "--topic", shell_complete=complete_topics, help="Only this topic. Default: all topics of the group."
)


#: Settings of a group. None leaves a setting unchanged.
_settings = options(
    click.option(
        "--retry-max",
        type=click.IntRange(-1),
        help="Retries after the first delivery, before a message becomes a dead letter.",
    ),
    click.option(
        "--retry-queues",
        type=click.IntRange(0, 1024),
        help="Queues of its retry topic; 0 disables retries and dead letters.",
    ),
    click.option("--consume/--no-consume", default=None, help="Allow its members to consume."),
    click.option("--broadcast/--no-broadcast", default=None, help="Allow broadcast consumption."),
    click.option(
        "--order/--no-order", default=None, help="Deliver each message group in order to 5.x clients."
    ),
    click.option(
        "--priority-factor",
        type=click.IntRange(0, 100),
        help="Percentage of pops that read topics of the type PRIORITY by priority.",
    ),
    click.option(
        "--lite-parent",
        metavar="TOPIC",
        help="The topic of the type LITE whose lite topics it consumes.",
    ),
    click.option(
        "--lite-exclusive/--lite-shared",
        default=None,
        help="Give each lite topic one client of the group, its last subscriber.",
    ),
)


_LAG_COLUMNS: Final = ("group", "topics", "lag", "seconds")
_PROGRESS_COLUMNS: Final = ("topic", "broker", "queue", "offset", "end", "lag", "in_flight", "seconds")
_MEMBER_COLUMNS: Final = ("client", "address", "language", "version", "release", "brokers", "subscriptions")

command = click.Group("group", help=COMMANDS["group"])


@command.command("list")
@click.option("--system", is_flag=True, help="Show system groups, too.")
@cluster_command
@columns("group")
def list_(admin: "Admin", system: bool) -> Rows:
    """List all groups.

    \b
    rmqpy group list
    """
    return [{"group": name} for name in admin.groups(with_system=system)]


@command.command()
@_GROUP
@cluster_command
@columns("broker", "consume", "broadcast", "order", "retry_max", "retry_queues", "priority_factor")
def describe(admin: "Admin", name: str) -> Rows:
    """Show the settings of group NAME on each broker.

    \b
    rmqpy group describe billing
    """
    from rmqpy.admin.groups import priority_factor

    return [
        {
            "broker": broker,
            "consume": group.consume_enable,
            "broadcast": group.consume_broadcast_enable,
            "order": group.consume_message_orderly,
            "retry_max": group.retry_max_times,
            "retry_queues": group.retry_queue_nums,
            "priority_factor": priority_factor(group),
        }
        for broker, group in sorted(admin.group(name).items())
    ]


@command.command()
@_GROUP
@_settings
@click.option("--cluster", help="Required if the name servers know several clusters.")
@click.option("--if-not-exists", is_flag=True, help="Leave it unchanged on brokers that have it.")
@cluster_command
def create(admin: "Admin", name: str, cluster: str | None, if_not_exists: bool, **settings: Any) -> Rows:
    """Create group NAME on every broker of the cluster. An existing group is an error: group alter changes it.

    \b
    rmqpy group create mailers --retry-max 3
    rmqpy group create mailers --if-not-exists
    """
    made = admin.create_group(name, cluster=cluster, exist_ok=if_not_exists, **settings)
    if not made:
        note(f"group {name!r} already exists on every broker; nothing changed")
    return {"group": name, "brokers": made}


@command.command()
@_GROUP
@_settings
@cluster_command
def alter(admin: "Admin", name: str, **settings: Any) -> Rows:
    """Change the given settings of group NAME.

    \b
    rmqpy group alter billing --retry-max 8
    """
    check_given(settings)
    brokers = admin.update_group(name, **settings)
    return {"group": name, "brokers": brokers}


@command.command()
@_GROUP
@click.option("--keep-offsets", is_flag=True, help="Keep its offsets for a new group of this name.")
@confirmed
@cluster_command
def delete(admin: "Admin", name: str, keep_offsets: bool) -> Rows:
    """Delete group NAME and its offsets, but not its retry and dead-letter topics.

    \b
    rmqpy group delete audit --yes
    """
    return {"group": name, "deleted_from": admin.delete_group(name, with_offsets=not keep_offsets)}


@command.command()
@click.argument("name", required=False, shell_complete=complete_groups)
@_TOPIC
@with_admin
@output_option
def lag(admin: "Admin", name: str | None, topic: str | None, output: Format) -> None:
    """Show the lag of group NAME by queue, in messages and seconds; without NAME, of every group.

    \b
    rmqpy group lag
    rmqpy group lag billing --topic orders
    """
    if name is not None:
        rows = [_progress(row) for row in admin.progress(name, topic)]
        if not rows:
            note(f"group {name!r} has no committed offsets")
            if output in ("table", "wide"):
                return
    elif topic is None:
        rows = _lags(admin)
    else:
        raise click.UsageError("--topic needs the NAME of a group")
    key = "group" if name is None else "topic"
    keys = _LAG_COLUMNS if name is None else _PROGRESS_COLUMNS
    counts = ("lag",) if name is None else ("lag", "in_flight")
    show(
        rows,
        output,
        columns=keys,
        totals=lambda: {key: "sum", **{count: sum(row[count] for row in rows) for count in counts}},
    )


@command.command()
@_GROUP
@_TOPIC
@watch_options
@with_admin
def watch(
    admin: "Admin",
    name: str,
    topic: str | None,
    every: float,
    rounds: int | None,
    output: Literal["table", "jsonl"],
) -> None:
    """Show lag and rates of group NAME by topic, repeatedly, until Ctrl-C.

    \b
    rmqpy group watch billing
    rmqpy group watch billing --every 10 -o jsonl
    """
    before: dict[str, _TopicProgress] = {}
    for moment in looks(every, rounds):
        now = _by_topic(moment, admin.progress(name, topic))
        show_again([_watched(each, now[each], before.get(each)) for each in sorted(now)], output)
        before = now


@command.command()
@_GROUP
@with_admin
@output_option
def members(admin: "Admin", name: str, output: Format) -> None:
    """List the clients in group NAME. Warns when their subscriptions differ.

    \b
    rmqpy group members billing
    """
    from rmqpy.admin.groups import disagreements

    found = admin.members(name)
    rows = [
        {
            "client": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
            "release": member.release,
            "brokers": list(member.brokers),
            "subscriptions": None
            if member.subscriptions is None
            else [f"{topic} ({text})" for topic, text in sorted(member.subscriptions.items())],
        }
        for member in found
    ]
    show(rows, output, columns=_MEMBER_COLUMNS)
    differing = disagreements(found)
    if len(differing) > 1:
        note("Warning: subscriptions of the members differ; brokers use that of the last heartbeat:")
        for clients, subscriptions in differing:
            text = ", ".join(f"{topic} ({expression})" for topic, expression in sorted(subscriptions.items()))
            note(f"  {', '.join(clients)}: {text or 'nothing'}")


@command.command()
@_GROUP
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--to",
    required=True,
    metavar="begin|end|TIME|AGE|OFFSET",
    help="Position to continue at; an offset needs --queue.",
)
@click.option("--broker", shell_complete=complete_brokers, help="Only queues of this broker.")
@click.option("--queue", type=click.IntRange(0), help="Only this queue; with several brokers, add --broker.")
@_DRY_RUN
@yes_option
@cluster_command
@columns("topic", "broker", "queue", "from", "to", "messages")
def reset(
    admin: "Admin",
    name: str,
    topic: str,
    to: str,
    broker: str | None,
    queue: int | None,
    dry_run: bool,
    yes: bool,
) -> Rows:
    """Reset the offsets of group NAME in TOPIC. Takes effect at its next pull, whether online or not.

    \b
    rmqpy group reset billing orders --to 10m --dry-run
    rmqpy group reset billing orders --to begin --yes
    """
    where = place(to)
    if isinstance(where, int) and queue is None:
        raise click.UsageError("an offset belongs to one queue: give --queue")
    offset = where if isinstance(where, int) else None
    reset_queues = partial(admin.reset_offsets, name, topic, _place(where), broker=broker, queue_id=queue)
    return _move(partial(reset_queues, offset=offset), dry_run=dry_run, yes=yes, name=name, topic=topic)


@command.command()
@_GROUP
@_TOPIC
@_DRY_RUN
@yes_option
@cluster_command
@columns("topic", "broker", "queue", "from", "to", "messages")
def skip(admin: "Admin", name: str, topic: str | None, dry_run: bool, yes: bool) -> Rows:
    """Skip the backlog of group NAME: it continues with messages sent from now on.

    \b
    rmqpy group skip billing --topic orders --yes
    """
    skip_backlog = partial(admin.skip_backlog, name, topic)
    return _move(skip_backlog, dry_run=dry_run, yes=yes, name=name)


@command.command()
@click.argument("source", shell_complete=complete_groups)
@click.argument("target", shell_complete=complete_groups)
@_TOPIC
@confirmed
@cluster_command
def clone(admin: "Admin", source: str, target: str, topic: str | None) -> Rows:
    """Copy the offsets of group SOURCE to group TARGET.

    \b
    rmqpy group clone billing audit --yes
    """
    brokers = admin.clone_offsets(source, target, topic)
    return {"source": source, "target": target, "brokers": brokers}


def _progress(row: "Progress") -> dict[str, Any]:
    return {
        "topic": row.topic,
        "broker": row.broker,
        "queue": row.queue_id,
        "offset": row.offset,
        "end": row.end,
        "lag": row.lag,
        "in_flight": row.in_flight,
        "seconds": round(row.behind_ms / 1_000, 1),
    }


def _lags(admin: "Admin") -> list[dict[str, Any]]:
    """Lag of all groups, longest first."""
    from rmqpy.errors import GroupNotFound

    rows = []
    for name in admin.groups():
        # The group may have been deleted in between.
        with suppress(GroupNotFound):
            progress = admin.progress(name)
            rows.append(
                {
                    "group": name,
                    "topics": sorted({row.topic for row in progress}),
                    "lag": sum(row.lag for row in progress),
                    "seconds": round(max((row.behind_ms for row in progress), default=0) / 1_000, 1),
                }
            )
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))


class _TopicProgress(NamedTuple):
    """Progress of a group in all queues of a topic together, at a moment in seconds."""

    moment: float
    consumed: int
    sent: int
    lag: int
    behind_ms: int


def _by_topic(moment: float, progress: "list[Progress]") -> dict[str, _TopicProgress]:
    found: dict[str, _TopicProgress] = {}
    for row in progress:
        known = found.get(row.topic) or _TopicProgress(moment, 0, 0, 0, 0)
        found[row.topic] = _TopicProgress(
            moment,
            known.consumed + row.offset,
            known.sent + row.end,
            known.lag + row.lag,
            max(known.behind_ms, row.behind_ms),
        )
    return found


def _watched(topic: str, now: _TopicProgress, before: _TopicProgress | None) -> dict[str, object]:
    """Rates since the previous round; None in the first."""
    sent = consumed = None
    if before is not None:
        seconds = now.moment - before.moment
        sent = round((now.sent - before.sent) / seconds, 1)
        consumed = round((now.consumed - before.consumed) / seconds, 1)
    return {
        "at": time_text(datetime.now(UTC)),
        "topic": topic,
        "lag": now.lag,
        "seconds": round(now.behind_ms / 1_000, 1),
        "sent_per_second": sent,
        "consumed_per_second": consumed,
    }


def _move(moves: "Callable[..., list[Move]]", *, dry_run: bool, yes: bool, **facts: str) -> Rows:
    """Make moves, or those of a dry run, after confirming what they change."""
    if not (dry_run or yes):
        steps = [move.target - move.offset for move in moves(dry_run=True)]
        ways = {
            "back": -sum(step for step in steps if step < 0),
            "forward": sum(step for step in steps if step > 0),
        }
        # Moves of zero steps lose nothing.
        if by := " and ".join(f"{count} messages {way}" for way, count in ways.items() if count):
            confirm(**facts, by=by)
    return [
        {
            "topic": move.topic,
            "broker": move.broker,
            "queue": move.queue_id,
            "from": move.offset,
            "to": move.target,
            "messages": move.target - move.offset,
        }
        for move in moves(dry_run=dry_run)
    ]


def _place(where: "Literal['begin', 'end'] | int | datetime") -> "Place":
    return round(where.timestamp() * 1_000) if isinstance(where, datetime) else where
