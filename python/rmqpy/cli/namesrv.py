"""`rmqpy namesrv`."""

from pathlib import Path

import click

from rmqpy.cli.settings import run_server, server_options


@click.command()
@server_options("namesrv.conf")
def command(settings: dict[str, str], config: Path | None, is_printing: bool) -> None:
    """Run a name server until Ctrl-C. KEY=VALUE wins over the file.

    \b
    rmqpy namesrv listenPort=9877 bindAddress=0.0.0.0
    """
    from rmqpy.config.namesrv import load
    from rmqpy.namesrv import NameServer

    run_server(load(config, settings), NameServer, is_printing)
