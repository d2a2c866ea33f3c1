"""`rmqpy config`: get, set, diff, validate."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqpy.cli.options import cluster_options, complete_brokers, connect
from rmqpy.cli.output import Format, output_option, show
from rmqpy.cli.settings import parse_settings

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin

_NAME_SERVERS = "namesrv"
_SERVER = click.argument("server", shell_complete=complete_brokers, metavar="BROKER|namesrv")


@click.group()
def command() -> None:
    """Settings of running servers and of files."""


@command.command()
@_SERVER
@click.argument("keys", nargs=-1)
@cluster_options
@output_option
def get(server: str, keys: tuple[str, ...], namesrv: str, timeout: float, output: Format) -> None:
    """Settings of a running broker, or of the name servers; only KEYS where some are named.

    \b
    rmqpy config get broker-a flushDiskType brokerPermission
    rmqpy config get namesrv
    """
    with connect(namesrv, timeout) as admin:
        found = _settings(admin, server)
    if unknown := [key for key in keys if key not in found]:
        raise click.UsageError(f"{server} has no setting {', '.join(unknown)}")
    show({key: found[key] for key in keys or sorted(found)}, output)


@command.command("set")
@_SERVER
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@cluster_options
@output_option
def set_(server: str, settings: tuple[str, ...], namesrv: str, timeout: float, output: Format) -> None:
    """Change settings of a running broker, or of every name server. They are written to its file, too.

    \b
    rmqpy config set broker-a brokerPermission=6
    rmqpy config set namesrv orderMessageEnable=false
    """
    given = parse_settings(settings)
    with connect(namesrv, timeout) as admin:
        if server == _NAME_SERVERS:
            admin.update_namesrv_config(given)
        else:
            admin.update_broker_config(server, given)
    show({"server": server, **given}, output)


@command.command()
@_SERVER
@click.argument("other", metavar="BROKER|FILE")
@cluster_options
@output_option
def diff(server: str, other: str, namesrv: str, timeout: float, output: Format) -> int:
    """Settings in which a running server differs from another, or from a file; exit code 1 when there are some.

    \b
    rmqpy config diff broker-a broker-b
    rmqpy config diff broker-a broker.conf
    """
    from rmqpy.config import properties

    with connect(namesrv, timeout) as admin:
        left = _settings(admin, server)
        if Path(other).is_file():
            right = properties.parse(properties.decode(Path(other).read_bytes()))
            # A file names what it changes; the other keys have their defaults on both sides.
            left = {key: value for key, value in left.items() if key in right}
        else:
            right = _settings(admin, other)
    rows = [
        {"key": key, server: left.get(key), other: right.get(key)}
        for key in sorted(left.keys() | right.keys())
        if left.get(key) != right.get(key)
    ]
    show(rows, output)
    return 1 if rows else 0


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--namesrv", "is_name_server", is_flag=True, help="A file of a name server.")
@output_option
def validate(file: Path, is_name_server: bool, output: Format) -> None:
    """Whether a server would start with FILE, and what it would say about its keys. Asks nobody.

    \b
    rmqpy config validate broker.conf
    rmqpy config validate namesrv.conf --namesrv
    """
    if is_name_server:
        from rmqpy.config.namesrv import load as load_name_server

        notices = load_name_server(file).notices
    else:
        from rmqpy.config.broker import load

        notices = load(file).notices
    show({"file": str(file), "valid": True, "notices": notices}, output)


def _settings(admin: "Admin", server: str) -> dict[str, str]:
    if server != _NAME_SERVERS:
        return admin.broker_config(server)
    # Of several, the first: they are meant to be set alike.
    return next(iter(admin.namesrv_config().values()))
