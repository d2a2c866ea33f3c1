"""`rmqpy topic`: list, describe, status, tail, settings, route, create, alter, delete; static topics are elsewhere."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import (
    Result,
    Rows,
    check_given,
    cluster_command,
    columns,
    confirm,
    confirmed,
    with_admin,
    yes_option,
)
from rmqpy.cli.options import complete_topics
from rmqpy.cli.output import Format, message_printer, messages_option, ms_text, note
from rmqpy.cli.static_topics import mapping, remap, static

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.admin.topics import Perm, QueueState

_TOPIC = click.argument("name", shell_complete=complete_topics)
_PERM = click.Choice(["RW", "R", "W"])
_QUEUES = click.IntRange(1, 1024)
_TYPES = click.Choice(["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"])


command = click.Group("topic", help=COMMANDS["topic"])
for _static in (static, mapping, remap):
    command.add_command(_static)


@command.command("list")
@click.option("--system", is_flag=True, help="Show system topics, too.")
@click.option("--types", is_flag=True, help="Show message types, too; asks every broker.")
@cluster_command
def list_(admin: "Admin", system: bool, types: bool) -> Result:
    """List all topics.

    \b
    rmqpy topic list
    rmqpy topic list --types
    """
    if types:
        found = admin.topic_types(with_system=system)
        typed = [{"topic": name, "type": kind} for name, kind in found.items()]
        return Result(typed, 0, ("topic", "type"))
    return Result([{"topic": name} for name in admin.topics(with_system=system)], 0, ("topic",))


@command.command()
@_TOPIC
@cluster_command
@columns("broker", "address", "queue", "perm", "begin", "end", "messages", "last_stored", "type")
def describe(admin: "Admin", name: str) -> Rows:
    """Show the queues of topic NAME: broker, offsets, last message, and the message type.

    \b
    rmqpy topic describe orders
    """
    from rmqpy.admin.topics import message_type

    settings = admin.topic_settings(name)
    types = {broker: message_type(topic) for broker, topic in settings.items()}
    return [_row(queue) | {"type": types.get(queue.broker)} for queue in admin.topic(name)]


@command.command()
@_TOPIC
@cluster_command
@columns("direction", "group", "per_second", "last_hour", "last_day", "lag")
def status(admin: "Admin", name: str) -> Rows:
    """Show traffic of topic NAME: messages in, messages out to each group, and lags.

    \b
    rmqpy topic status orders
    """
    return [
        {
            "direction": "in" if flow.group is None else "out",
            "group": flow.group,
            "per_second": round(flow.per_second, 1),
            "last_hour": flow.last_hour,
            "last_day": flow.last_day,
            "lag": flow.lag,
        }
        for flow in admin.topic_status(name)
    ]


@command.command()
@_TOPIC
@click.option(
    "--last",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Number of latest messages to begin with.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for new messages until Ctrl-C.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many messages.")
@messages_option
@with_admin
def tail(admin: "Admin", name: str, last: int, follow: bool, count: int | None, output: Format) -> None:
    """Print the newest messages of topic NAME. Commits no offsets.

    \b
    rmqpy topic tail orders
    rmqpy topic tail orders --last 1 --follow -o jsonl
    """
    with message_printer(output) as print_message:
        for message in islice(admin.tail(name, last, follow=follow), count):
            print_message(message)


@command.command()
@_TOPIC
@cluster_command
@columns("broker", "read_queues", "write_queues", "perm", "order", "type")
def settings(admin: "Admin", name: str) -> Rows:
    """Show the settings of topic NAME on each broker.

    \b
    rmqpy topic settings orders
    """
    return _settings(admin, name)


def _settings(admin: "Admin", name: str) -> list[dict[str, Any]]:
    from rmqpy.admin.topics import message_type, permission

    return [
        {
            "broker": broker,
            "read_queues": topic.read_queue_nums,
            "write_queues": topic.write_queue_nums,
            "perm": permission(topic.perm),
            "order": topic.order,
            "type": message_type(topic),
        }
        for broker, topic in sorted(admin.topic_settings(name).items())
    ]


@command.command()
@_TOPIC
@cluster_command
@columns("cluster", "broker", "id", "address", "read_queues", "write_queues", "perm")
def route(admin: "Admin", name: str) -> Rows:
    """Show the route of topic NAME that name servers return to clients.

    \b
    rmqpy topic route orders
    """
    from rmqpy.admin.topics import permission

    found = admin.route(name)
    queues = {data.broker_name: data for data in found.queue_datas}
    return [
        {
            "cluster": broker.cluster,
            "broker": broker.broker_name,
            "id": broker_id,
            "address": address,
            "read_queues": queues[broker.broker_name].read_queue_nums,
            "write_queues": queues[broker.broker_name].write_queue_nums,
            "perm": permission(queues[broker.broker_name].perm),
        }
        for broker in sorted(found.broker_datas, key=lambda broker: broker.broker_name)
        if broker.broker_name in queues
        for broker_id, address in sorted(broker.broker_addrs.items())
    ]


@command.command()
@click.argument("name")
@click.option("--queues", type=_QUEUES, default=8, show_default=True, help="Queues on each broker.")
@click.option("--perm", type=_PERM, default="RW", show_default=True, help="Permissions of clients.")
@click.option(
    "--type",
    "message_type",
    type=_TYPES,
    default="NORMAL",
    show_default=True,
    help="Message type; MIXED needs enableMixedMessageType on the broker.",
)
@click.option("--order", is_flag=True, help="An order topic: its queues stay with their brokers.")
@click.option(
    "--compacted", is_flag=True, help="Keep the newest message of each key; each message needs one."
)
@click.option(
    "--lite-minutes",
    type=click.IntRange(1, 43_200),
    help="With --type LITE: delete a lite topic this long after its last message.",
)
@click.option("--cluster", help="Required if the name servers know several clusters.")
@click.option("--if-not-exists", is_flag=True, help="Leave it unchanged on brokers that have it.")
@click.option("--partial", is_flag=True, help="Create it on brokers with a master, even if others have none.")
@cluster_command
def create(
    admin: "Admin", name: str, queues: int, perm: "Perm", if_not_exists: bool, **settings: Any
) -> Rows:
    """Create topic NAME on every broker of the cluster. An existing topic is an error: topic alter changes it.

    \b
    rmqpy topic create refunds --queues 4
    rmqpy topic create refunds --queues 4 --if-not-exists
    """
    made = admin.create_topic(
        name, read_queues=queues, write_queues=queues, perm=perm, exist_ok=if_not_exists, **settings
    )
    if admin.left_out() is not None:
        note("repeat with --if-not-exists when the other brokers have a master")
    if not made:
        note(f"topic {name!r} already exists on every broker; nothing changed")
        return _settings(admin, name)
    return {"topic": name, "queues": queues, "perm": perm, "brokers": made}


@command.command()
@_TOPIC
@click.option("--queues", type=_QUEUES, help="Queues on each broker: sets --read-queues and --write-queues.")
@click.option("--read-queues", type=_QUEUES, help="Queues consumers see on each broker.")
@click.option("--write-queues", type=_QUEUES, help="Queues producers see on each broker.")
@click.option("--perm", type=_PERM, help="Permissions of clients.")
@click.option("--order/--no-order", default=None, help="Make it an order topic, or not.")
@click.option("--type", "message_type", type=_TYPES, help="Message type.")
@yes_option
@cluster_command
def alter(admin: "Admin", name: str, queues: int | None, yes: bool, **settings: Any) -> Rows:
    """Change the given settings of topic NAME. Asks before removing queues or read permission.

    To reduce queues, lower --write-queues first, and --read-queues once the removed queues are consumed.

    \b
    rmqpy topic alter orders --perm RW
    rmqpy topic alter orders --type FIFO
    """
    if queues is not None:
        if settings["read_queues"] or settings["write_queues"]:
            raise click.UsageError("give --queues, or --read-queues and --write-queues")
        settings |= {"read_queues": queues, "write_queues": queues}
    check_given(settings)
    if not yes and (
        losses := _losses(admin, name, settings["read_queues"], settings["write_queues"], settings["perm"])
    ):
        confirm(name=name, losses="; ".join(losses))
    brokers = admin.update_topic(name, **settings)
    return {"topic": name, "brokers": brokers}


@command.command()
@_TOPIC
@confirmed
@cluster_command
def delete(admin: "Admin", name: str) -> Rows:
    """Delete topic NAME from all brokers and name servers. Its messages become unreadable.

    \b
    rmqpy topic delete bills --yes
    """
    return {"topic": name, "deleted_from": admin.delete_topic(name)}


def _losses(
    admin: "Admin", name: str, read_queues: int | None, write_queues: int | None, perm: "Perm | None"
) -> list[str]:
    """Describe the loss with fewer queues or without read permission; empty without a loss."""
    losses = []
    for kind, wanted in (("read", read_queues), ("write", write_queues)):
        for broker, topic in sorted(admin.topic_settings(name).items()):
            present = topic.read_queue_nums if kind == "read" else topic.write_queue_nums
            if wanted is not None and wanted < present:
                losses.append(f"{broker}: {present} to {wanted} {kind} queues")
    first_hidden = read_queues
    if perm is not None and "R" not in perm:
        readable = [row.broker for row in admin.topic(name) if "R" in row.permission]
        losses += [f"{broker}: no permission to read" for broker in sorted(set(readable))]
        first_hidden = 0
    if first_hidden is not None and losses:
        hidden = sum(row.end - row.begin for row in admin.topic(name) if row.queue_id >= first_hidden)
        losses.append(f"{hidden} messages become unreadable")
    return losses


def _row(queue: "QueueState") -> dict[str, object]:
    return {
        "broker": queue.broker,
        "address": queue.address,
        "queue": queue.queue_id,
        "perm": queue.permission,
        "begin": queue.begin,
        "end": queue.end,
        "messages": queue.end - queue.begin,
        "last_stored": ms_text(queue.stored_at_ms),
    }
