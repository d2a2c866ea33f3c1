"""`rmqpy topic static`, `mapping` and `remap`: logical queues that move between brokers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rmqpy.cli.command import Rows, cluster_command, columns
from rmqpy.cli.options import complete_topics

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.admin.static_topics import LogicalSegment

_TOPIC = click.argument("name", shell_complete=complete_topics)
_BROKERS = click.option(
    "--broker",
    "brokers",
    multiple=True,
    help="A broker for the queues; repeat it. All of the cluster by default.",
)
_CLUSTER = click.option("--cluster", help="Required if the name servers know several clusters.")
_PLAN = click.option("--plan", "is_plan", is_flag=True, help="Print the result, and change nothing.")
_COLUMNS = ("queue", "generation", "broker", "local_queue", "begin", "leads")


@click.command()
@click.argument("name")
@click.option("--queues", type=click.IntRange(1, 16_384), required=True, help="Logical queues in total.")
@_BROKERS
@_CLUSTER
@_PLAN
@cluster_command
@columns(*_COLUMNS)
def static(
    admin: "Admin", name: str, queues: int, brokers: tuple[str, ...], cluster: str | None, is_plan: bool
) -> Rows:
    """Create static topic NAME, or add queues to it. Its queues are numbered over all brokers.

    \b
    rmqpy topic static accounts --queues 8
    rmqpy topic static accounts --queues 12 --broker broker-b --plan
    """
    found = admin.create_static_topic(name, queues, brokers=brokers or None, cluster=cluster, is_plan=is_plan)
    return _rows(found)


@click.command()
@_TOPIC
@cluster_command
@columns(*_COLUMNS)
def mapping(admin: "Admin", name: str) -> Rows:
    """Show the logical queues of static topic NAME, and the queues of brokers that store them.

    \b
    rmqpy topic mapping accounts
    """
    return _rows(admin.static_topic(name))


@click.command()
@_TOPIC
@_BROKERS
@_CLUSTER
@_PLAN
@cluster_command
@columns(*_COLUMNS)
def remap(admin: "Admin", name: str, brokers: tuple[str, ...], cluster: str | None, is_plan: bool) -> Rows:
    """Spread the queues of static topic NAME evenly over brokers, with as few moves as possible.

    Stored messages stay where they are, and consumers read on without a change of offsets. Repeat the command if it was
    interrupted.

    \b
    rmqpy topic remap accounts --plan
    rmqpy topic remap accounts --broker broker-a --broker broker-b
    """
    found = admin.remap_static_topic(name, brokers=brokers or None, cluster=cluster, is_plan=is_plan)
    return _rows(found)


def _rows(segments: "Sequence[LogicalSegment]") -> Rows:
    return [
        {
            "queue": each.queue,
            "generation": each.generation,
            "broker": each.broker,
            "local_queue": each.local_queue,
            "begin": each.begin,
            "leads": each.is_leader,
        }
        for each in segments
    ]
