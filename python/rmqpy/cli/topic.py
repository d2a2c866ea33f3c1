"""`rmqpy topic`: list, describe, status, tail, settings, route, create, alter, delete."""

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from rmqpy.cli.options import cluster_options, complete_topics, connect
from rmqpy.cli.output import Format, message_text, messages_option, output_option, show, time_text

if TYPE_CHECKING:
    from rmqpy.admin.topics import Perm, QueueState, TopicType

_TOPIC = click.argument("name", shell_complete=complete_topics)
_PERM = click.Choice(["RW", "R", "W"])
_QUEUES = click.IntRange(1, 1024)


@click.group()
def command() -> None:
    """Topics: what there is, what goes through them, their settings; create, change, delete."""


@command.command("list")
@click.option("--system", is_flag=True, help="Show the topics RocketMQ keeps for itself, too.")
@cluster_options
@output_option
def list_(system: bool, namesrv: str, timeout: float, output: Format) -> None:
    """Names of all topics.

    \b
    rmqpy topic list
    """
    with connect(namesrv, timeout) as admin:
        names = admin.topics(with_system=system)
    show([{"topic": name} for name in names], output)


@command.command()
@_TOPIC
@cluster_options
@output_option
def describe(name: str, namesrv: str, timeout: float, output: Format) -> None:
    """Queues of topic NAME: where they lie and what they hold.

    \b
    rmqpy topic describe orders
    """
    with connect(namesrv, timeout) as admin:
        queues = admin.topic(name)
    show([_row(queue) for queue in queues], output)


@command.command()
@_TOPIC
@cluster_options
@output_option
def status(name: str, namesrv: str, timeout: float, output: Format) -> None:
    """What comes into topic NAME, what each group takes out of it, and how much waits for each.

    \b
    rmqpy topic status orders
    """
    with connect(namesrv, timeout) as admin:
        flows = admin.topic_status(name)
    rows = [
        {
            "direction": "in" if flow.group is None else "out",
            "group": flow.group,
            "per_second": round(flow.per_second, 1),
            "last_hour": flow.last_hour,
            "last_day": flow.last_day,
            "lag": flow.lag,
        }
        for flow in flows
    ]
    show(rows, output)


@command.command()
@_TOPIC
@click.option(
    "--last", type=click.IntRange(0), default=10, show_default=True, help="Begin so many messages back."
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes in, until Ctrl-C.")
@click.option("--count", type=click.IntRange(1), help="Stop after so many messages.")
@messages_option
@cluster_options
def tail(
    name: str,
    last: int,
    follow: bool,
    count: int | None,
    namesrv: str,
    timeout: float,
    output: Format,
) -> None:
    """The newest messages of topic NAME. Nobody's progress changes.

    \b
    rmqpy topic tail orders
    rmqpy topic tail orders --last 1 --follow -o jsonl
    """
    with connect(namesrv, timeout) as admin:
        for message in islice(admin.tail(name, last, follow=follow), count):
            click.echo(message_text(message, output))


@command.command()
@_TOPIC
@cluster_options
@output_option
def settings(name: str, namesrv: str, timeout: float, output: Format) -> None:
    """Settings of topic NAME on each broker.

    \b
    rmqpy topic settings orders
    """
    from rmqpy.admin.topics import permission

    with connect(namesrv, timeout) as admin:
        found = admin.topic_settings(name)
    rows = [
        {
            "broker": broker,
            "read_queues": topic.read_queue_nums,
            "write_queues": topic.write_queue_nums,
            "perm": permission(topic.perm),
            "order": topic.order,
            "type": topic.attributes.get("message.type", "NORMAL"),
        }
        for broker, topic in sorted(found.items())
    ]
    show(rows, output)


@command.command()
@_TOPIC
@cluster_options
@output_option
def route(name: str, namesrv: str, timeout: float, output: Format) -> None:
    """What name servers tell clients about topic NAME.

    \b
    rmqpy topic route orders
    """
    from rmqpy.admin.topics import permission

    with connect(namesrv, timeout) as admin:
        found = admin.route(name)
    queues = {data.broker_name: data for data in found.queue_datas}
    rows = [
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
    show(rows, output)


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
@cluster_options
@output_option
def create(
    name: str,
    queues: int,
    perm: "Perm",
    message_type: "TopicType",
    order: bool,
    cluster: str | None,
    namesrv: str,
    timeout: float,
    output: Format,
) -> None:
    """Make topic NAME on every broker of the cluster, or change it where it exists.

    \b
    rmqpy topic create bills --queues 4
    """
    with connect(namesrv, timeout) as admin:
        brokers = admin.create_topic(
            name,
            read_queues=queues,
            write_queues=queues,
            perm=perm,
            message_type=message_type,
            order=order,
            cluster=cluster,
        )
    show({"topic": name, "queues": queues, "perm": perm, "brokers": brokers}, output)


@command.command()
@_TOPIC
@click.option("--read-queues", type=_QUEUES, help="Queues consumers see on each broker.")
@click.option("--write-queues", type=_QUEUES, help="Queues producers see on each broker.")
@click.option("--perm", type=_PERM, help="What clients may do.")
@click.option("--order/--no-order", default=None, help="Whether it is an order topic.")
@cluster_options
@output_option
def alter(
    name: str,
    read_queues: int | None,
    write_queues: int | None,
    perm: "Perm | None",
    order: bool | None,
    namesrv: str,
    timeout: float,
    output: Format,
) -> None:
    """Change some settings of topic NAME; the others stay.

    To have fewer queues, lower --write-queues first, and --read-queues when the others are consumed.

    \b
    rmqpy topic alter orders --perm RW
    """
    if (read_queues, write_queues, perm, order) == (None, None, None, None):
        raise click.UsageError("nothing to change: name a setting")
    with connect(namesrv, timeout) as admin:
        brokers = admin.update_topic(
            name, read_queues=read_queues, write_queues=write_queues, perm=perm, order=order
        )
    show({"topic": name, "brokers": brokers}, output)


@command.command()
@_TOPIC
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
@output_option
def delete(name: str, yes: bool, namesrv: str, timeout: float, output: Format) -> None:
    """Remove topic NAME from all brokers and name servers. Its messages cannot be read any more.

    \b
    rmqpy topic delete bills --yes
    """
    if not yes:
        click.confirm(f"Delete topic {name!r} and give up its messages?", abort=True, err=True)
    with connect(namesrv, timeout) as admin:
        brokers = admin.delete_topic(name)
    show({"topic": name, "deleted_from": brokers}, output)


def _row(queue: "QueueState") -> dict[str, object]:
    stored_at = datetime.fromtimestamp(queue.stored_at_ms / 1000, UTC) if queue.stored_at_ms > 0 else None
    return {
        "broker": queue.broker,
        "address": queue.address,
        "queue": queue.queue_id,
        "perm": queue.permission,
        "begin": queue.begin,
        "end": queue.end,
        "messages": queue.end - queue.begin,
        "last_stored": time_text(stored_at) if stored_at else None,
    }
