"""`rmqpy group`: list, describe, create, alter, delete, lag, watch, members, reset, skip, clone."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from rmqpy.cli.options import cluster_options, complete_groups, complete_topics, connect, options, place
from rmqpy.cli.output import Format, note, output_option, show, time_text
from rmqpy.cli.watching import looks, show_again, watch_options

if TYPE_CHECKING:
    from rmqpy.admin.groups import Move, Place, Progress

_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what would move, and move nothing.")
_YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
_GROUP = click.argument("name", shell_complete=complete_groups)
_TOPIC = click.option(
    "--topic", shell_complete=complete_topics, help="Only this topic; all of the group's otherwise."
)


#: Settings of a group; one that is not given is None and stays as it is.
_settings = options(
    click.option("--retry-max", type=click.IntRange(-1), help="Deliveries before a message is given up."),
    click.option(
        "--retry-queues", type=click.IntRange(0, 1024), help="Queues of its retry topic; 0: no retries."
    ),
    click.option("--consume/--no-consume", default=None, help="Whether its members may consume."),
    click.option(
        "--broadcast/--no-broadcast", default=None, help="Whether they may each consume everything."
    ),
)


@click.group()
def command() -> None:
    """Consumer groups: settings, members, progress."""


@command.command("list")
@click.option("--system", is_flag=True, help="Show the groups RocketMQ keeps for itself, too.")
@cluster_options
@output_option
def list_(system: bool, namesrv: str, timeout: float, output: Format) -> None:
    """Names of all groups.

    \b
    rmqpy group list
    """
    with connect(namesrv, timeout) as admin:
        names = admin.groups(with_system=system)
    show([{"group": name} for name in names], output)


@command.command()
@_GROUP
@cluster_options
@output_option
def describe(name: str, namesrv: str, timeout: float, output: Format) -> None:
    """Settings of group NAME on each broker.

    \b
    rmqpy group describe billing
    """
    with connect(namesrv, timeout) as admin:
        found = admin.group(name)
    rows = [
        {
            "broker": broker,
            "consume": group.consume_enable,
            "broadcast": group.consume_broadcast_enable,
            "retry_max": group.retry_max_times,
            "retry_queues": group.retry_queue_nums,
        }
        for broker, group in sorted(found.items())
    ]
    show(rows, output)


@command.command()
@_GROUP
@_settings
@click.option("--cluster", help="Needed where the name servers know several clusters.")
@cluster_options
@output_option
def create(
    name: str, cluster: str | None, namesrv: str, timeout: float, output: Format, **settings: Any
) -> None:
    """Make group NAME on every broker of the cluster, or give it these settings where it exists.

    \b
    rmqpy group create audit --retry-max 3
    """
    with connect(namesrv, timeout) as admin:
        brokers = admin.create_group(name, cluster=cluster, **settings)
    show({"group": name, "brokers": brokers}, output)


@command.command()
@_GROUP
@_settings
@cluster_options
@output_option
def alter(name: str, namesrv: str, timeout: float, output: Format, **settings: Any) -> None:
    """Change some settings of group NAME; the others stay.

    \b
    rmqpy group alter billing --retry-max 8
    """
    if all(value is None for value in settings.values()):
        raise click.UsageError("nothing to change: name a setting")
    with connect(namesrv, timeout) as admin:
        brokers = admin.update_group(name, **settings)
    show({"group": name, "brokers": brokers}, output)


@command.command()
@_GROUP
@click.option("--keep-offsets", is_flag=True, help="A group made again under this name goes on where it was.")
@_YES
@cluster_options
@output_option
def delete(name: str, keep_offsets: bool, yes: bool, namesrv: str, timeout: float, output: Format) -> None:
    """Forget group NAME and its offsets. Its retry and dead-letter topics stay.

    \b
    rmqpy group delete audit --yes
    """
    if not yes:
        click.confirm(f"Forget the group {name!r} and where it stands?", abort=True, err=True)
    with connect(namesrv, timeout) as admin:
        brokers = admin.delete_group(name, with_offsets=not keep_offsets)
    show({"group": name, "deleted_from": brokers}, output)


@command.command()
@_GROUP
@_TOPIC
@cluster_options
@output_option
def lag(name: str, topic: str | None, namesrv: str, timeout: float, output: Format) -> None:
    """How far group NAME is behind, in messages and in seconds, queue by queue.

    \b
    rmqpy group lag billing --topic orders
    """
    with connect(namesrv, timeout) as admin:
        progress = admin.progress(name, topic)
    rows = [
        {
            "topic": row.topic,
            "broker": row.broker,
            "queue": row.queue_id,
            "offset": row.offset,
            "end": row.end,
            "lag": row.lag,
            "seconds": round(row.behind_ms / 1_000, 1),
        }
        for row in progress
    ]
    show(rows, output)


@command.command()
@_GROUP
@_TOPIC
@watch_options
@cluster_options
def watch(
    name: str,
    topic: str | None,
    every: float,
    rounds: int | None,
    namesrv: str,
    timeout: float,
    output: Literal["table", "jsonl"],
) -> None:
    """How far group NAME is behind in each topic, and whether it catches up: again and again until Ctrl-C.

    \b
    rmqpy group watch billing
    rmqpy group watch billing --every 10 -o jsonl
    """
    before: dict[str, _Standing] = {}
    with connect(namesrv, timeout) as admin:
        for moment in looks(every, rounds):
            now = _standings(moment, admin.progress(name, topic))
            show_again([_watched(each, now[each], before.get(each)) for each in sorted(now)], output)
            before = now


@command.command()
@_GROUP
@cluster_options
@output_option
def members(name: str, namesrv: str, timeout: float, output: Format) -> None:
    """The clients in group NAME. Warns when they do not all subscribe to the same.

    \b
    rmqpy group members billing
    """
    from rmqpy.admin.groups import disagreements

    with connect(namesrv, timeout) as admin:
        found = admin.members(name)
    rows = [
        {
            "client": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
            "brokers": list(member.brokers),
            "subscriptions": None
            if member.subscriptions is None
            else [f"{topic} ({text})" for topic, text in sorted(member.subscriptions.items())],
        }
        for member in found
    ]
    show(rows, output)
    wishes = disagreements(found)
    if len(wishes) > 1:
        note("Warning: members subscribe differently, and the last heartbeat counts:")
        for clients, wish in wishes:
            text = ", ".join(f"{topic} ({expression})" for topic, expression in sorted(wish.items()))
            note(f"  {', '.join(clients)}: {text or 'nothing'}")


@command.command()
@_GROUP
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--to",
    required=True,
    metavar="begin|end|TIME|AGE|OFFSET",
    help="Where to go on; an offset needs --queue.",
)
@click.option("--queue", type=click.IntRange(0), help="Only this queue.")
@_DRY_RUN
@_YES
@cluster_options
@output_option
def reset(
    name: str,
    topic: str,
    to: str,
    queue: int | None,
    dry_run: bool,
    yes: bool,
    namesrv: str,
    timeout: float,
    output: Format,
) -> None:
    """Let group NAME go on elsewhere in TOPIC. Takes effect at its next pull, online or not.

    \b
    rmqpy group reset billing orders --to 10m --dry-run
    rmqpy group reset billing orders --to begin --yes
    """
    where = place(to)
    if isinstance(where, int) != (queue is not None):
        raise click.UsageError("an offset belongs to one queue: give both, or neither")
    offset = where if isinstance(where, int) else None
    moment = _place(where)
    with connect(namesrv, timeout) as admin:
        _move(
            f"Move the group {name!r} in {topic!r}",
            lambda is_dry: admin.reset_offsets(
                name, topic, moment, queue_id=queue, offset=offset, dry_run=is_dry
            ),
            dry_run=dry_run,
            yes=yes,
            output=output,
        )


@command.command()
@_GROUP
@_TOPIC
@_DRY_RUN
@_YES
@cluster_options
@output_option
def skip(
    name: str, topic: str | None, dry_run: bool, yes: bool, namesrv: str, timeout: float, output: Format
) -> None:
    """Let group NAME give up what waits: it goes on with what is sent from now on.

    \b
    rmqpy group skip billing --topic orders --yes
    """
    with connect(namesrv, timeout) as admin:
        _move(
            f"Let the group {name!r} skip what waits",
            lambda is_dry: admin.skip_backlog(name, topic, dry_run=is_dry),
            dry_run=dry_run,
            yes=yes,
            output=output,
        )


@command.command()
@click.argument("source", shell_complete=complete_groups)
@click.argument("target", shell_complete=complete_groups)
@_TOPIC
@_YES
@cluster_options
@output_option
def clone(
    source: str, target: str, topic: str | None, yes: bool, namesrv: str, timeout: float, output: Format
) -> None:
    """Let group TARGET go on where group SOURCE stands.

    \b
    rmqpy group clone billing audit --yes
    """
    if not yes:
        click.confirm(f"Move the group {target!r} to where {source!r} stands?", abort=True, err=True)
    with connect(namesrv, timeout) as admin:
        brokers = admin.clone_offsets(source, target, topic)
    show({"source": source, "target": target, "brokers": brokers}, output)


class _Standing(NamedTuple):
    """Where a group stands in all queues of a topic together, at a moment in seconds."""

    moment: float
    consumed: int
    sent: int
    lag: int
    behind_ms: int


def _standings(moment: float, progress: "list[Progress]") -> dict[str, _Standing]:
    found: dict[str, _Standing] = {}
    for row in progress:
        known = found.get(row.topic) or _Standing(moment, 0, 0, 0, 0)
        found[row.topic] = _Standing(
            moment,
            known.consumed + row.offset,
            known.sent + row.end,
            known.lag + row.lag,
            max(known.behind_ms, row.behind_ms),
        )
    return found


def _watched(topic: str, now: _Standing, before: _Standing | None) -> dict[str, object]:
    """The rates are those since the look before; there are none at the first."""
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


def _move(
    question: str,
    moves: "Callable[[bool], list[Move]]",
    *,
    dry_run: bool,
    yes: bool,
    output: Format,
) -> None:
    """Show or make moves, after asking with what they would be."""
    if not (dry_run or yes):
        messages = sum(abs(move.target - move.offset) for move in moves(True))
        click.confirm(f"{question}, by {messages} messages?", abort=True, err=True)
    show([_row(move) for move in moves(dry_run)], output)


def _place(where: "Literal['begin', 'end'] | int | datetime") -> "Place":
    return round(where.timestamp() * 1_000) if isinstance(where, datetime) else where


def _row(move: "Move") -> dict[str, object]:
    return {
        "topic": move.topic,
        "broker": move.broker,
        "queue": move.queue_id,
        "from": move.offset,
        "to": move.target,
        "messages": move.target - move.offset,
    }
