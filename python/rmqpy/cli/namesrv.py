"""`rmqpy namesrv`."""

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
@config_option("namesrv.conf")
@print_option
@log_options
def command(settings: dict[str, str], config: Path | None, is_printing: bool) -> None:
    """Run a name server until Ctrl-C. KEY=VALUE wins over the file.

    \b
    rmqpy namesrv listenPort=9877 bindAddress=0.0.0.0
    """
    from rmqpy.config.namesrv import load
    from rmqpy.namesrv import NameServer
    from rmqpy.server import serve

    reading = load(config, settings)
    log_warnings(reading.warnings)
    if is_printing:
        print_settings(reading.config)
        return
    server = NameServer(reading.config)
    asyncio.run(
        serve(server, lambda: click.echo(f"rmqpy {__version__}: name server {server.address} is ready"))
    )
