"""`rmqpy proxy`."""

import asyncio
from pathlib import Path

import click

from rmqpy import __version__
from rmqpy.cli.options import option_value
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
@config_option("rmq-proxy.json, or the same keys as properties")
@click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT[;…]",
    callback=option_value,
    help="Name servers; the same as namesrvAddr=…",
)
@print_option
@log_options
def command(settings: dict[str, str], config: Path | None, namesrv: str | None, is_printing: bool) -> None:
    """Serve 5.x clients in front of a cluster, rmqpy's or Apache's, until Ctrl-C. KEY=VALUE wins over the file.

    Name servers come from -n or KEY=VALUE, the file, or $NAMESRV_ADDR, in this order.

    \b
    rmqpy proxy -n 10.0.0.1:9876 bindAddress=0.0.0.0
    """
    from rmqpy.config.proxy import load
    from rmqpy.proxy import ProxyServer
    from rmqpy.server import serve

    if namesrv is not None:
        settings["namesrvAddr"] = namesrv
    reading = load(config, settings)
    log_warnings(reading.warnings)
    if is_printing:
        print_settings(reading.config)
        return
    server = ProxyServer(reading.config)
    asyncio.run(serve(server, lambda: click.echo(f"rmqpy {__version__}: proxy {server.address} is ready")))
