"""`rmqpy dashboard`."""

import asyncio
from pathlib import Path
from typing import Literal

import click

from rmqpy.cli.options import client_config, cluster_options, number
from rmqpy.cli.settings import log_options


@click.command()
@cluster_options
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; other than loopback, users must log in.",
)
@number("--port", low=0, high=65_535, default=8082)
@click.option("--allow-changes", is_flag=True, help="Allow changes; the default is read-only.")
@click.option("--login", is_flag=True, help="Require a login on this machine, too.")
@click.option(
    "--bodies",
    type=click.Choice(["shown", "masked", "hidden"]),
    default="shown",
    show_default=True,
    help="Message bodies shown to users that are not super users.",
)
@click.option(
    "--grafana",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write Grafana dashboards and Prometheus alert rules to this folder and exit.",
)
@click.option(
    "--alerts",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="Watch the alert rules of this file, and notify its receivers.",
)
@click.option(
    "--prometheus",
    default="",
    metavar="URL",
    help="Link from charts to this Prometheus for longer times, such as http://10.0.0.9:9090.",
)
@log_options
def command(
    namesrv: str,
    timeout: float,
    host: str,
    port: int,
    allow_changes: bool,
    login: bool,
    bodies: Literal["shown", "masked", "hidden"],
    grafana: Path | None,
    alerts: Path | None,
    prometheus: str,
) -> None:
    """Serve the web console of a cluster, rmqpy's or Apache's, until Ctrl-C.

    \b
    rmqpy dashboard -n 10.0.0.1:9876

    Port 0 picks a free port.
    """
    if grafana is not None:
        from rmqpy.monitor.grafana import export

        for path in export(grafana):
            click.echo(path)
        return
    from rmqpy.alerts.rules import load
    from rmqpy.console.dashboard import Dashboard
    from rmqpy.server import serve

    server = Dashboard(
        client_config(namesrv, timeout),
        host=host,
        port=port,
        allow_changes=allow_changes,
        login=login,
        bodies=bodies,
        alerts=None if alerts is None else load(alerts),
        prometheus=prometheus,
    )
    mode = "changes are allowed" if allow_changes else "read-only"

    def announce() -> None:
        click.echo(f"the console of {namesrv} is ready, {mode}: http://{server.address}/\nstop with Ctrl-C")

    asyncio.run(serve(server, announce))
