"""`rmqpy doctor`: what is broken, and what to do about it."""

from pathlib import Path

import click

from rmqpy.cli.options import cluster_options, complete_topics, connect
from rmqpy.cli.output import Format, output_option
from rmqpy.cli.verdicts import disk_free_option, tell_verdicts


@click.command()
@click.option(
    "-c",
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A broker.conf: look whether that broker could run on this machine.",
)
@click.option(
    "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Look at this topic, too."
)
@disk_free_option
@cluster_options
@output_option
def command(
    config: Path | None,
    topics: tuple[str, ...],
    disk_free_min: int,
    namesrv: str,
    timeout: float,
    output: Format,
) -> int:
    """Look at name servers, brokers, their addresses, clocks and disks; exit code 1 when something is bad.

    With -c, also at the file and this machine: ports, folder, permissions, disk. It changes nothing.

    \b
    rmqpy doctor --topic orders
    rmqpy doctor -c broker.conf
    """
    from rmqpy.admin import machine

    room = disk_free_min << 20
    verdicts, broker = [machine.versions()], None
    if config is not None:
        found, broker = machine.configuration(config)
        verdicts += found
    with connect(broker.namesrv if broker and broker.namesrv else namesrv, timeout) as admin:
        if broker is not None:
            verdicts += admin.broker_health(broker, disk_free_min=room)
        verdicts += admin.health(disk_free_min=room)
        for topic in topics:
            verdicts += admin.topic_health(topic)
    return tell_verdicts(verdicts, output)
