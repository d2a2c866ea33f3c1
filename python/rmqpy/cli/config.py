"""`rmqpy config`: get, set, diff, validate."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqpy.cli import COMMANDS
from rmqpy.cli.command import Result, Rows, cluster_command, printed
from rmqpy.cli.options import EXISTING_FILE, complete_brokers
from rmqpy.cli.settings import settings_argument

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin

_NAME_SERVERS = "namesrv"
_SERVER = click.argument("server", shell_complete=complete_brokers, metavar="BROKER|namesrv")


command = click.Group("config", help=COMMANDS["config"])


@command.command()
@_SERVER
@click.argument("keys", nargs=-1)
@cluster_command
def get(admin: "Admin", server: str, keys: tuple[str, ...]) -> Rows:
    """Show the settings of a running broker or of the name servers: all, or only KEYS.

    \b
    rmqpy config get broker-a flushDiskType brokerPermission
    rmqpy config get namesrv
    """
    found = _settings(admin, server)
    if unknown := [key for key in keys if key not in found]:
        raise click.UsageError(f"{server} has no setting {', '.join(unknown)}")
    return {key: found[key] for key in keys or sorted(found)}


@command.command("set")
@_SERVER
@settings_argument(required=True, metavar="KEY=VALUE...")
@cluster_command
def set_(admin: "Admin", server: str, settings: dict[str, str]) -> Rows:
    """Change settings of a running broker or of every name server, also in its file.

    \b
    rmqpy config set broker-a brokerPermission=6
    rmqpy config set namesrv orderMessageEnable=false
    """
    if server == _NAME_SERVERS:
        admin.update_namesrv_config(settings)
    else:
        admin.update_broker_config(server, settings)
    return {"server": server, **settings}


@command.command()
@_SERVER
@click.argument("other", metavar="BROKER|FILE")
@cluster_command
def diff(admin: "Admin", server: str, other: str) -> Result:
    """Compare the settings of a running server with another or with a file. Exit code 1 if any differ.

    \b
    rmqpy config diff broker-a broker-b
    rmqpy config diff broker-a broker.conf
    """
    from rmqpy.config.keys import read_file

    left = _settings(admin, server)
    if Path(other).is_file():
        right = read_file(other)
        # A file names only what it changes: other keys have their defaults on both sides.
        left = {key: value for key, value in left.items() if key in right}
    else:
        right = _settings(admin, other)
    rows = [
        {"key": key, server: left.get(key), other: right.get(key)}
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]
    return Result(rows, 1 if rows else 0, ("key", server, other))


@command.command()
@click.argument("file", type=EXISTING_FILE)
@click.option("--namesrv", "is_name_server", is_flag=True, help="FILE configures a name server.")
@printed
def validate(file: Path, is_name_server: bool) -> Rows:
    """Check that a server would start with FILE. Contacts no server.

    \b
    rmqpy config validate broker.conf
    rmqpy config validate namesrv.conf --namesrv
    """
    from rmqpy.config import broker, namesrv

    reading = namesrv.load(file) if is_name_server else broker.load(file)
    return {"file": str(file), "valid": True, "notices": reading.warnings}


def _settings(admin: "Admin", server: str) -> dict[str, str]:
    if server != _NAME_SERVERS:
        return admin.broker_config(server)
    # All name servers should have the same settings: the first one answers for them.
    return next(iter(admin.namesrv_config().values()))
