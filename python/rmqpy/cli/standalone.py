"""`rmqpy standalone`: a name server and a broker in one process."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click

from rmqpy import __version__
from rmqpy.cli.options import number
from rmqpy.cli.output import note_printer
from rmqpy.cli.settings import log_options, log_warnings, settings_argument
from rmqpy.config.addresses import LOOPBACK
from rmqpy.config.keys import HTTP_PORT

#: A file system in memory, on Linux.
MEMORY: Final = Path("/dev/shm")
#: With less free space there, the folder is elsewhere: below 64 MiB a store refuses messages.
MEMORY_ROOM_MIN: Final = 256 << 20
#: Settings of a store in memory. Files are preallocated: small ones leave room for messages. A write ring would keep
#: the end of the log twice.
SMALL: Final = {
    "commitLogWritePath": "mapping",
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "200000",
    "maxHashSlotNum": "100000",
    "maxIndexNum": "400000",
}


@click.command()
@settings_argument()
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Folder for messages.")
@click.option("--memory", is_flag=True, help="Keep messages in memory until it stops.")
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen on and to advertise.")
@number("--namesrv-port", low=0, high=65_535, default=9876)
@number("--broker-port", low=0, high=65_535, default=10911)
@click.option(
    "--http",
    "http_port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help=f"Port of the console, /metrics, /livez, /healthz and /readyz. Default: {HTTP_PORT}, or a free port "
    "if it is taken; none with another --host.",
)
@click.option("--no-http", is_flag=True, help="Do not serve HTTP.")
@click.option("--allow-changes", is_flag=True, help="Allow changes in the console; the default is read-only.")
@log_options
def command(
    settings: dict[str, str],
    data_dir: Path | None,
    memory: bool,
    host: str,
    namesrv_port: int,
    broker_port: int,
    http_port: int | None,
    no_http: bool,
    allow_changes: bool,
) -> None:
    """Run a name server and a broker in one process until Ctrl-C.

    \b
    rmqpy standalone
    rmqpy standalone --memory
    rmqpy standalone --data-dir data flushDiskType=SYNC_FLUSH

    KEY=VALUE sets a setting of broker.conf or namesrv.conf, for instance flushDiskType=SYNC_FLUSH. Port 0 picks a free
    port. A second Ctrl-C ends the process immediately; the next start then recovers.
    """
    if memory and data_dir is not None:
        raise click.UsageError("give --data-dir or --memory")
    if no_http and http_port is not None:
        raise click.UsageError("give --http or --no-http")
    from rmqpy.config.broker import refuse_unknown
    from rmqpy.config.keys import NO_HTTP
    from rmqpy.config.namesrv import NameServerConfig
    from rmqpy.server import Standalone, serve

    refuse_unknown({wire: value for wire, value in settings.items() if wire not in NameServerConfig.served()})
    is_local = host == LOOPBACK and not settings.get("bindAddress")
    is_default = is_local and not no_http and http_port is None and "httpPort" not in settings
    if is_default:
        http_port = HTTP_PORT
    with ExitStack() as stack:
        server = Standalone(
            stack.enter_context(_folder_in_memory()) if memory else data_dir,
            host=host,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            http_port=NO_HTTP if http_port is None else http_port,
            takes_any_http_port=is_default,
            progress=note_printer(),
            clock=None,
            **(SMALL if memory else {}) | ({"httpAllowChanges": "true"} if allow_changes else {}) | settings,
        )

        def announce() -> None:
            log_warnings(server.warnings)
            option = "" if server.namesrv == "127.0.0.1:9876" else f" -n {server.namesrv}"
            is_other = is_default and not str(server.http).endswith(f":{HTTP_PORT}")
            remark = f" (port {HTTP_PORT} is taken)" if is_other else ""
            watch = f"  console: http://{server.http}/{remark}\n" if server.http else ""
            grpc = f"  5.x clients (gRPC): {server.grpc}\n" if server.grpc else ""
            click.echo(
                f"rmqpy {__version__} is ready: name server {server.namesrv}, broker {server.broker}, "
                f"data in {server.data_dir}{', deleted when it stops' if memory else ''}\n"
                f"{watch}{grpc}"
                f"  rmqpy produce{option} greetings 'hello'\n"
                f"  rmqpy consume{option} greetings\n"
                "stop with Ctrl-C"
            )

        asyncio.run(serve(server, announce))


@contextmanager
def _folder_in_memory() -> Iterator[Path]:
    """A temporary folder, in memory if there is enough space."""
    has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_ROOM_MIN
    if not has_room:
        log_warnings(
            [f"{MEMORY} has less than {MEMORY_ROOM_MIN >> 20} MiB free: messages are in temporary files"]
        )
    with tempfile.TemporaryDirectory(prefix="rmqpy-", dir=MEMORY if has_room else None) as name:
        yield Path(name)
