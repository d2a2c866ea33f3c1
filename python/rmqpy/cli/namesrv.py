"""`rmqpy namesrv`."""

import asyncio
from pathlib import Path

import click

from rmqpy import __version__
from rmqpy.cli.settings import log_options, parse_settings, tell


@click.command()
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "-c", "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="namesrv.conf"
)
@log_options
def command(settings: tuple[str, ...], config: Path | None) -> None:
    """Run a name server until Ctrl-C. KEY=VALUE wins over the file.

    \b
    rmqpy namesrv listenPort=9877 bindAddress=0.0.0.0
    """
    from rmqpy.config.namesrv import load
    from rmqpy.namesrv import NameServer
    from rmqpy.server import serve

    reading = load(config, parse_settings(settings))
    tell(reading.notices)
    server = NameServer(reading.config)
    asyncio.run(
        serve(server, lambda: click.echo(f"rmqpy {__version__}: name server {server.address} is ready"))
    )
