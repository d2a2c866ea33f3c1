"""mqadmin: static topics."""

import click

from rmqpy.admin.static_topics import LogicalSegment
from rmqpy.cli.mq.tool import TOPIC, Tool, line, switch, tool_command

_CLUSTERS = click.option("-c", "--clusters", "cluster", help="The cluster of the brokers.")
_BROKERS = click.option("-b", "--brokers", "brokers", metavar="NAMES", help="Names of brokers, with commas.")
#: Apache's tool ignores the file.
_FILE = click.option("-mf", "--mapFile", "file", help="Not supported.")
_FORCE = switch("-fr", "--forceReplace", "force", default=False, help="Not supported.")


@tool_command("updateStaticTopic")
@TOPIC
@_CLUSTERS
@_BROKERS
@click.option("-qn", "--totalQueueNum", "queues", type=click.IntRange(1, 16_384), required=True)
@_FILE
@_FORCE
def update_static_topic(
    tool: Tool,
    topic: str,
    cluster: str | None,
    brokers: str | None,
    queues: int,
    file: str | None,
    force: bool,
) -> None:
    """Create a static topic, or add queues to it."""
    _check(cluster, brokers, file, force)
    _show(tool.create_static_topic(topic, queues, brokers=_names(brokers), cluster=cluster))


@tool_command("remappingStaticTopic")
@TOPIC
@_CLUSTERS
@_BROKERS
@_FILE
@_FORCE
def remapping_static_topic(
    tool: Tool, topic: str, cluster: str | None, brokers: str | None, file: str | None, force: bool
) -> None:
    """Spread the queues of a static topic evenly over brokers."""
    _check(cluster, brokers, file, force)
    _show(tool.remap_static_topic(topic, brokers=_names(brokers), cluster=cluster))


def _check(cluster: str | None, brokers: str | None, file: str | None, force: bool) -> None:
    if file or force:
        raise click.UsageError(
            "mapping files are not supported: use rmqpy topic mapping and rmqpy topic remap"
        )
    if cluster is None and brokers is None:
        raise click.UsageError("give -b NAMES or -c CLUSTER")


def _names(brokers: str | None) -> list[str] | None:
    return None if brokers is None else [name.strip() for name in brokers.split(",") if name.strip()]


def _show(segments: list[LogicalSegment]) -> None:
    line((8, "#Queue"), (12, "#Generation"), (32, "#Broker"), (12, "#LocalQueue"), (20, "#LogicOffset"))
    for each in segments:
        line(
            (8, each.queue),
            (12, each.generation),
            (32, each.broker),
            (12, each.local_queue),
            (20, each.begin),
        )
