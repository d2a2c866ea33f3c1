"""`rmqpy standalone`: all it takes to send a message."""

import asyncio
from pathlib import Path

import click

from rmqpy import __version__
from rmqpy.cli.settings import log_options, parse_settings, tell


@click.command()
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where messages are kept.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on and to tell clients."
)
@click.option("--namesrv-port", type=click.IntRange(0, 65_535), default=9876, show_default=True)
@click.option("--broker-port", type=click.IntRange(0, 65_535), default=10911, show_default=True)
@click.option(
    "--http",
    "http_port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Serve /metrics, /healthz and /readyz there; RocketMQ's usual port is 8082.",
)
@log_options
def command(
    settings: tuple[str, ...],
    data_dir: Path | None,
    host: str,
    namesrv_port: int,
    broker_port: int,
    http_port: int | None,
) -> None:
    """Run a name server and a broker in one process until Ctrl-C.

    \b
    rmqpy standalone
    rmqpy standalone --data-dir data flushDiskType=SYNC_FLUSH

    KEY=VALUE are settings of broker.conf, for instance flushDiskType=SYNC_FLUSH. Port 0 takes a free one. A second
    Ctrl-C ends the process at once; the next start then recovers.
    """
    from rmqpy.config.keys import NO_HTTP
    from rmqpy.server import Standalone, serve

    server = Standalone(
        data_dir,
        host=host,
        namesrv_port=namesrv_port,
        broker_port=broker_port,
        http_port=NO_HTTP if http_port is None else http_port,
        progress=lambda line: click.echo(line, err=True),
        **parse_settings(settings),
    )

    def announce() -> None:
        tell(server.notices)
        option = "" if server.namesrv == "127.0.0.1:9876" else f" -n {server.namesrv}"
        watch = f"  http://{server.http}/metrics\n" if server.http else ""
        click.echo(
            f"rmqpy {__version__} is ready: name server {server.namesrv}, broker {server.broker}, "
            f"data in {server.data_dir}\n"
            f"{watch}"
            f"  rmqpy produce{option} greetings 'hello'\n"
            f"  rmqpy consume{option} greetings\n"
            "stop with Ctrl-C"
        )

    asyncio.run(serve(server, announce))
