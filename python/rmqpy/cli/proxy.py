"""`rmqpy proxy`."""

from pathlib import Path

import click

from rmqpy.cli.settings import namesrv_option, run_server, server_options


@click.command()
@server_options("rmq-proxy.json, or the same keys as properties", namesrv_option)
def command(settings: dict[str, str], config: Path | None, namesrv: str | None, is_printing: bool) -> None:
    """Serve 5.x clients in front of a cluster, rmqpy's or Apache's, until Ctrl-C. KEY=VALUE wins over the file.

    Name servers come from -n or KEY=VALUE, the file, or $NAMESRV_ADDR, in this order.

    \b
    rmqpy proxy -n 10.0.0.1:9876 bindAddress=0.0.0.0
    """
    from rmqpy.config.proxy import load
    from rmqpy.proxy import ProxyServer

    if namesrv is not None:
        settings["namesrvAddr"] = namesrv
    run_server(load(config, settings), ProxyServer, is_printing)
