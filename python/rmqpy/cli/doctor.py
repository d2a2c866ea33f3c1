"""`rmqpy doctor`: health checks of cluster and machine, with advice."""

from pathlib import Path

import click

from rmqpy.cli.checks import disk_free_option, report
from rmqpy.cli.command import Result, printed
from rmqpy.cli.options import cluster_options, complete_topics, connect
from rmqpy.cli.settings import config_option


@click.command()
@config_option("A broker.conf: look whether that broker could run on this machine.")
@click.option(
    "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Look at this topic, too."
)
@disk_free_option
@cluster_options
@printed
def command(
    config: Path | None, topics: tuple[str, ...], disk_free_min: int, namesrv: str, timeout: float
) -> Result:
    """Look at name servers, brokers, their addresses, clocks and disks; exit code 1 when something is bad.

    With -c, also at the file and this machine: ports, folder, permissions, disk. It changes nothing.

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
    return report(checks)
