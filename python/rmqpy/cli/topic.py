"""`rmqpy topic`: list, describe, status, tail, settings, route, create, alter, delete."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import Rows, check_given, cluster_command, confirmed, with_admin
from rmqpy.cli.options import complete_topics
from rmqpy.cli.output import Format, message_text, messages_option, ms_text

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.admin.topics import Perm, QueueState

_TOPIC = click.argument("name", shell_complete=complete_topics)
_PERM = click.Choice(["RW", "R", "W"])
_QUEUES = click.IntRange(1, 1024)


command = click.Group("topic", help=COMMANDS["topic"])


@command.command("list")
@click.option("--system", is_flag=True, help="Show system topics, too.")
@cluster_command
def list_(admin: "Admin", system: bool) -> Rows:
    """Names of all topics.

    \b
    rmqpy topic list
    """
    return [{"topic": name} for name in admin.topics(with_system=system)]


@command.command()
@_TOPIC
@cluster_command
def describe(admin: "Admin", name: str) -> Rows:
    """Queues of topic NAME: their broker, offsets and last message.

    \b
    rmqpy topic describe orders
    """
    return [_row(queue) for queue in admin.topic(name)]


@command.command()
@_TOPIC
@cluster_command
def status(admin: "Admin", name: str) -> Rows:
    """Traffic of topic NAME: messages in, messages out to each group, and lags.

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
    "--last", type=click.IntRange(0), default=10, show_default=True, help="Begin so many messages back."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes in, until Ctrl-C.")
@click.option("--count", type=click.IntRange(1), help="Stop after so many messages.")
@messages_option
@with_admin
def tail(admin: "Admin", name: str, last: int, follow: bool, count: int | None, output: Format) -> None:
    """The newest messages of topic NAME. No consumer's progress changes.

    \b
    rmqpy topic tail orders
    rmqpy topic tail orders --last 1 --follow -o jsonl
    """
    for message in islice(admin.tail(name, last, follow=follow), count):
        click.echo(message_text(message, output))


@command.command()
@_TOPIC
@cluster_command
def settings(admin: "Admin", name: str) -> Rows:
    """Settings of topic NAME on each broker.

    \b
    rmqpy topic settings orders
    """
    from rmqpy.admin.topics import permission

    return [
        {
            "broker": broker,
            "read_queues": topic.read_queue_nums,
            "write_queues": topic.write_queue_nums,
            "perm": permission(topic.perm),
            "order": topic.order,
            "type": topic.attributes.get("message.type", "NORMAL"),
        }
        for broker, topic in sorted(admin.topic_settings(name).items())
    ]


@command.command()
@_TOPIC
@cluster_command
def route(admin: "Admin", name: str) -> Rows:
    """Route of topic NAME, as name servers give it to clients.

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
@click.option("--perm", type=_PERM, default="RW", show_default=True, help="What clients may do.")
@click.option(
    "--type",
    "message_type",
    type=click.Choice(["NORMAL", "FIFO", "DELAY", "TRANSACTION"]),
    default="NORMAL",
    show_default=True,
    help="What it is for.",
)
@click.option("--order", is_flag=True, help="An order topic: its queues stay with their brokers.")
@click.option("--cluster", help="Needed where the name servers know several clusters.")
@cluster_command
def create(admin: "Admin", name: str, queues: int, perm: "Perm", **settings: Any) -> Rows:
    """Make topic NAME on every broker of the cluster, or change it where it exists.

    \b
    rmqpy topic create bills --queues 4
    """
    brokers = admin.create_topic(name, read_queues=queues, write_queues=queues, perm=perm, **settings)
    return {"topic": name, "queues": queues, "perm": perm, "brokers": brokers}


@command.command()
@_TOPIC
@click.option("--read-queues", type=_QUEUES, help="Queues consumers see on each broker.")
@click.option("--write-queues", type=_QUEUES, help="Queues producers see on each broker.")
@click.option("--perm", type=_PERM, help="What clients may do.")
@click.option("--order/--no-order", default=None, help="Whether it is an order topic.")
@cluster_command
def alter(admin: "Admin", name: str, **settings: Any) -> Rows:
    """Change some settings of topic NAME; the others stay.

    To have fewer queues, lower --write-queues first, and --read-queues when the others are consumed.

    \b
    rmqpy topic alter orders --perm RW
    """
    check_given(settings)
    brokers = admin.update_topic(name, **settings)
    return {"topic": name, "brokers": brokers}


@command.command()
@_TOPIC
@confirmed("Delete topic {name!r} and its messages?")
@cluster_command
def delete(admin: "Admin", name: str) -> Rows:
    """Remove topic NAME from all brokers and name servers. Its messages cannot be read any more.

    \b
    rmqpy topic delete bills --yes
    """
    return {"topic": name, "deleted_from": admin.delete_topic(name)}


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
