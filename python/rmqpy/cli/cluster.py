"""`rmqpy cluster`: info, watch, health."""

from typing import TYPE_CHECKING, Literal

import click

from rmqpy.cli.options import cluster_options, connect
from rmqpy.cli.output import Format, output_option, show
from rmqpy.cli.verdicts import disk_free_option, tell_verdicts
from rmqpy.cli.watching import looks, show_again, watch_options

if TYPE_CHECKING:
    from rmqpy.admin.cluster import BrokerState


@click.group()
def command() -> None:
    """The brokers of a cluster, and whether they are well."""


@command.command()
@cluster_options
@output_option
def info(namesrv: str, timeout: float, output: Format) -> None:
    """Every registered broker: address, version, messages a second, disk.

    \b
    rmqpy cluster info
    """
    with connect(namesrv, timeout) as admin:
        found = admin.brokers()
    show([_row(state) for state in found], output)


@command.command()
@watch_options
@cluster_options
def watch(
    every: float, rounds: int | None, namesrv: str, timeout: float, output: Literal["table", "jsonl"]
) -> None:
    """The same again and again, until Ctrl-C.

    \b
    rmqpy cluster watch --every 5
    """
    with connect(namesrv, timeout) as admin:
        for _ in looks(every, rounds):
            show_again([_row(state) for state in admin.brokers()], output)


@command.command()
@disk_free_option
@cluster_options
@output_option
def health(disk_free_min: int, namesrv: str, timeout: float, output: Format) -> int:
    """One verdict for every name server and broker; exit code 1 when one is bad.

    \b
    rmqpy cluster health
    """
    with connect(namesrv, timeout) as admin:
        return tell_verdicts(admin.health(disk_free_min=disk_free_min << 20), output)


def _row(state: "BrokerState") -> dict[str, object]:
    return {
        "cluster": state.cluster,
        "broker": state.broker,
        "id": state.broker_id,
        "address": state.address,
        "version": state.version,
        "in_per_second": state.in_per_second,
        "out_per_second": state.out_per_second,
        "disk_used": state.disk_used,
        "fault": state.fault,
    }
