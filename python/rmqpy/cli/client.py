"""`rmqpy client`: list, stack."""

from typing import TYPE_CHECKING

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import Rows, cluster_command, columns, with_admin
from rmqpy.cli.options import complete_groups
from rmqpy.cli.output import Format, output_option, show

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin


command = click.Group("client", help=COMMANDS["client"])


@command.command("list")
@click.option("-g", "--group", shell_complete=complete_groups, help="Only members of this group.")
@cluster_command
@columns("group", "role", "client", "address", "language", "version", "release", "brokers")
def list_(admin: "Admin", group: str | None) -> Rows:
    """List the clients connected to the brokers, a row for each group of a client.

    \b
    rmqpy client list
    rmqpy client list --group billing
    """
    return [
        {
            "group": client.group,
            "role": client.role,
            "client": client.client_id,
            "address": client.address,
            "language": client.language,
            "version": client.version,
            "release": client.release,
            "brokers": list(client.brokers),
        }
        for client in admin.clients(group)
    ]


@command.command()
@click.argument("group", shell_complete=complete_groups)
@click.argument("client", metavar="CLIENT")
@with_admin
@output_option
def stack(admin: "Admin", group: str, client: str, output: Format) -> None:
    """Show the thread stacks of CLIENT, a consumer in GROUP. `client list` shows client ids.

    \b
    rmqpy client stack shipping $CLIENT_ID
    """
    threads = admin.stack(group, client)
    if output in ("table", "wide"):
        click.echo(threads)
    else:
        show({"group": group, "client": client, "stack": threads}, output)
