"""`rmqpy broker`."""

import asyncio
from pathlib import Path

import click

from rmqpy import __version__
from rmqpy.cli.options import option_value
from rmqpy.cli.output import note_printer
from rmqpy.cli.settings import config_option, log_options, log_warnings, settings_argument


@click.command()
@settings_argument()
@config_option("broker.conf")
@click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT[;…]",
    callback=option_value,
    help="Name servers; the same as namesrvAddr=…",
)
@log_options
def command(settings: dict[str, str], config: Path | None, namesrv: str | None) -> None:
    """Run a broker until Ctrl-C. It reads broker.conf as Apache's does; KEY=VALUE wins over the file.

    \b
    rmqpy broker -c broker.conf
    rmqpy broker -n 127.0.0.1:9876 brokerName=broker-b listenPort=10921 storePathRootDir=data-b
    """
    from rmqpy.broker import Broker
    from rmqpy.config.broker import load
    from rmqpy.server import serve

    if namesrv is not None:
        settings["namesrvAddr"] = namesrv
    reading = load(config, settings)
    log_warnings(reading.warnings)
    server = Broker(reading.config, path=config, progress=note_printer())
    asyncio.run(
        serve(
            server,
            lambda: click.echo(
                f"rmqpy {__version__}: broker {reading.config.name} at {server.address} is ready, "
                f"data in {reading.config.store.folder}"
            ),
        )
    )
