"""`rmqpy controller`."""

from pathlib import Path

import click

from rmqpy.cli.settings import run_server, server_options


@click.command()
@server_options("controller.conf")
def command(settings: dict[str, str], config: Path | None, is_printing: bool) -> None:
    """Run a controller until Ctrl-C: it elects masters. KEY=VALUE wins over the file.

    \b
    rmqpy controller listenPort=9878 controllerStorePath=controller
    """
    from rmqpy.config.controller import load
    from rmqpy.controller import ControllerServer

    run_server(load(config, settings), ControllerServer, is_printing)
