"""`rmqpy client`: list, stack."""

import click

from rmqpy.cli.options import cluster_options, complete_groups, connect
from rmqpy.cli.output import Format, output_option, show


@click.group()
def command() -> None:
    """Connected producers and consumers."""


@command.command("list")
@click.option("-g", "--group", shell_complete=complete_groups, help="Only members of this group.")
@cluster_options
@output_option
def list_(group: str | None, namesrv: str, timeout: float, output: Format) -> None:
    """Who is connected to the brokers, a line for each group of a client.

    \b
    rmqpy client list
    rmqpy client list --group billing
    """
    with connect(namesrv, timeout) as admin:
        found = admin.clients(group)
    rows = [
        {
            "group": client.group,
            "role": client.role,
            "client": client.client_id,
            "address": client.address,
            "language": client.language,
            "version": client.version,
            "brokers": list(client.brokers),
        }
        for client in found
    ]
    show(rows, output)


@command.command()
@click.argument("group", shell_complete=complete_groups)
@click.argument("client", metavar="CLIENT")
@cluster_options
@output_option
def stack(group: str, client: str, namesrv: str, timeout: float, output: Format) -> None:
    """Where each thread of CLIENT stands, a consumer in GROUP: what it hangs on. `client list` names it.

    \b
    rmqpy client stack shipping $CLIENT_ID
    """
    with connect(namesrv, timeout) as admin:
        threads = admin.stack(group, client)
    if output in ("table", "wide"):
        click.echo(threads)
    else:
        show({"group": group, "client": client, "stack": threads}, output)
