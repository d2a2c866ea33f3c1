"""`rmqpy doctor`: health checks of cluster and machine, with advice."""

from pathlib import Path

import click

from rmqpy.cli.checks import disk_free_option, report
from rmqpy.cli.command import Result, printed
from rmqpy.cli.options import cluster_options, complete_groups, complete_topics, connect
from rmqpy.cli.settings import config_option


@click.command()
@config_option("Also check whether a broker with this broker.conf can run on this machine.")
@click.option(
    "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Check this topic, too."
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    shell_complete=complete_groups,
    help="Check this group, too: its lag, with possible reasons.",
)
@disk_free_option
@cluster_options
@printed
def command(
    config: Path | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    disk_free_min: int,
    namesrv: str,
    timeout: float,
) -> Result:
    """Check name servers, brokers, addresses, clocks and disks. Exit code 1 when something is bad.

    With -c, also check the file and this machine: ports, folder, permissions, disk. Changes nothing.

    \b
    rmqpy doctor --topic orders
    rmqpy doctor -c broker.conf
    """
    from rmqpy.admin import machine

    room = disk_free_min << 20
    checks, broker = [machine.versions()], None
    if config is not None:
        found, broker = machine.configuration(config)
        checks += found
    with connect(broker.namesrv if broker and broker.namesrv else namesrv, timeout) as admin:
        if broker is not None:
            checks += admin.broker_health(broker, disk_free_min=room)
        checks += admin.health(disk_free_min=room)
        for topic in topics:
            checks += admin.topic_health(topic)
        for group in groups:
            checks += admin.group_health(group)
    return report(checks)
