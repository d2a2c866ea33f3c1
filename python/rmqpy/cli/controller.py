"""`rmqpy controller`."""

import asyncio
from pathlib import Path

import click

from rmqpy import __version__
from rmqpy.cli.settings import (
    config_option,
    log_options,
    log_warnings,
    print_option,
    print_settings,
    settings_argument,
)


@click.command()
@settings_argument()
@config_option("controller.conf")
@print_option
@log_options
def command(settings: dict[str, str], config: Path | None, is_printing: bool) -> None:
    """Run a controller until Ctrl-C: it elects masters. KEY=VALUE wins over the file.

    \b
    rmqpy controller listenPort=9878 controllerStorePath=controller
    """
    from rmqpy.config.controller import load
    from rmqpy.controller import ControllerServer
    from rmqpy.server import serve

    reading = load(config, settings)
    log_warnings(reading.warnings)
    if is_printing:
        print_settings(reading.config)
        return
    server = ControllerServer(reading.config)
    asyncio.run(
        serve(server, lambda: click.echo(f"rmqpy {__version__}: controller {server.address} is ready"))
    )
