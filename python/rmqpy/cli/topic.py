"""`rmqpy topic`: list, describe, create, delete."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rmqpy.cli.options import asking, cluster_options, wait_for
from rmqpy.cli.output import Format, output_option, show

if TYPE_CHECKING:
    from rmqpy.admin.topics import QueueState, Topics


@click.group()
def command() -> None:
    """List, describe, create and delete topics."""


@command.command("list")
@click.option("--system", is_flag=True, help="Show the topics RocketMQ keeps for itself, too.")
@cluster_options
@output_option
def list_(system: bool, namesrv: str, timeout: float, output: Format) -> None:
    """Names of all topics."""
    with _topics(namesrv, timeout) as topics:
        names = wait_for(topics.names(with_system=system))
    show([{"topic": name} for name in names], output)


@command.command()
@click.argument("name")
@cluster_options
@output_option
def describe(name: str, namesrv: str, timeout: float, output: Format) -> None:
    """Queues of topic NAME: where they lie and what they hold."""
    with _topics(namesrv, timeout) as topics:
        queues = wait_for(topics.describe(name))
    show([_row(queue) for queue in queues], output)


@command.command()
@click.argument("name")
@click.option(
    "--queues", type=click.IntRange(1, 1024), default=8, show_default=True, help="Queues on each broker."
)
@click.option(
    "--perm",
    type=click.Choice(["RW", "R", "W"]),
    default="RW",
    show_default=True,
    help="What clients may do.",
)
@click.option("--cluster", help="Needed where the name servers know several clusters.")
@cluster_options
@output_option
def create(
    name: str, queues: int, perm: str, cluster: str | None, namesrv: str, timeout: float, output: Format
) -> None:
    """Make topic NAME on every broker of the cluster, or change it where it exists."""
    from rmqpy.admin.topics import READ, WRITE

    permission = (READ if "R" in perm else 0) | (WRITE if "W" in perm else 0)
    with _topics(namesrv, timeout) as topics:
        brokers = wait_for(
            topics.create(
                name, read_queues=queues, write_queues=queues, permission=permission, cluster=cluster
            )
        )
    show({"topic": name, "queues": queues, "perm": perm, "brokers": brokers}, output)


@command.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
@output_option
def delete(name: str, yes: bool, namesrv: str, timeout: float, output: Format) -> None:
    """Remove topic NAME from all brokers and name servers. Its messages cannot be read any more."""
    if not yes:
        click.confirm(f"Delete topic {name!r} and give up its messages?", abort=True, err=True)
    with _topics(namesrv, timeout) as topics:
        brokers = wait_for(topics.delete(name))
    show({"topic": name, "deleted_from": brokers}, output)


@contextmanager
def _topics(namesrv: str, timeout: float) -> "Iterator[Topics]":
    """The cluster's topics, over a connection that lasts as long as the command."""
    from rmqpy.admin.topics import Topics

    with asking(namesrv, timeout) as (caller, name_servers):
        yield Topics(caller, name_servers, timeout=timeout)


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
        "last_stored": stored_at.isoformat(timespec="milliseconds") if stored_at else None,
    }
