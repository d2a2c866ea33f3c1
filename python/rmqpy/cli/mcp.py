"""`rmqpy mcp`."""

import click

from rmqpy.cli.options import client_config, cluster_options


@click.command()
@click.option(
    "--allow-changes", is_flag=True, help="Allow changes, each after a preview; the default is read-only."
)
@click.option("--no-bodies", is_flag=True, help="Show no bodies of messages.")
@cluster_options
def command(allow_changes: bool, no_bodies: bool, namesrv: str, timeout: float) -> None:
    """Serve tools for an assistant over standard input and output, by the Model Context Protocol.

    \b
    rmqpy mcp -n 10.0.0.1:9876

    An assistant starts this command itself. Its tools explain the state of the cluster, the lag of groups, messages and
    dead letters. Needs: pip install 'rmqpy[mcp]'.
    """
    from rmqpy.mcp.server import serve

    serve(client_config(namesrv, timeout), allow_changes=allow_changes, shows_bodies=not no_bodies)
