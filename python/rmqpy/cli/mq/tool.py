"""Shared parts of mqadmin's commands: options, an open cluster, columns as Apache's tool prints them.

Long option names are Apache's, and so are flags that take `true` or `false`.
"""

import functools
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from rmqpy._native import ReceivedMessage
from rmqpy.admin.client import Admin, iterate
from rmqpy.admin.reading import read
from rmqpy.admin.topics import QueueState
from rmqpy.cli.options import DEFAULT_NAMESRV, client_config
from rmqpy.clock import date_of
from rmqpy.errors import ConfigError
from rmqpy.protocol.declare import Request
from rmqpy.remoting.client import run

R = TypeVar("R")

#: Apache's request timeout.
TIMEOUT_S: Final = 5.0

TOPIC = click.option("-t", "--topic", required=True)
GROUP = click.option("-g", "--groupName", "group", required=True)
BROKER_ADDRESS = click.option("-b", "--brokerAddr", "address", metavar="ADDRESS", help="Only this broker.")
CLUSTER = click.option("-c", "--clusterName", "cluster", help="All brokers of this cluster.")


class Tool(Admin):
    """A cluster whose servers can also be asked one by one."""

    def ask(self, address: str, ask: Request[R]) -> R:
        """Return the reply of one server."""
        return run(self._cluster().ask(address, ask))

    def read_queue(self, topic: str, state: QueueState) -> Iterator[ReceivedMessage]:
        """Return the messages of a queue from its start up to its end."""
        return iterate(read(self._cluster(), topic, state, state.begin, state.end))

    def name_servers(self) -> tuple[str, ...]:
        """Return the addresses of all name servers."""
        return tuple(self._cluster().name_servers.addresses)

    def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return name → address of the masters of a cluster."""
        return run(self._cluster().masters(cluster))

    def chosen(self, address: str | None, cluster: str | None) -> list[str]:
        """Return the addresses given by `-b` or `-c`: one, or those of a cluster's masters ordered by name."""
        if address is not None:
            return [address]
        if cluster is None:
            raise click.UsageError("give -b ADDRESS or -c CLUSTER")
        return [each for _, each in sorted(self.masters(cluster).items())]

    def address_of(self, broker: str) -> str:
        """Return the address of the master of this name. Raises `ConfigError`."""
        for state in self.brokers():
            if state.broker == broker and state.is_master:
                return state.address
        raise ConfigError(f"no master is called {broker!r}")

    def name_of(self, address: str) -> str:
        """Return the name of the broker at an address. Raises `ConfigError`."""
        for state in self.brokers():
            if state.address == address:
                return state.broker
        raise ConfigError(f"no broker is registered at {address}")


def tool_command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """A sub-command of mqadmin: the function gets the open cluster and its options."""

    def decorate(work: Callable[..., None]) -> click.Command:
        @click.command(name, context_settings={"help_option_names": ["-h", "--help"]})
        @click.option(
            "-n",
            "--namesrvAddr",
            "namesrv",
            envvar="NAMESRV_ADDR",
            default=DEFAULT_NAMESRV,
            show_default=True,
        )
        @functools.wraps(work)
        def command(namesrv: str, **given: Any) -> None:
            with Tool(client_config(namesrv, TIMEOUT_S)) as tool:
                work(tool, **given)

        return command

    return decorate


def switch(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """An option that takes `true` or `false`."""
    return click.option(*names, type=click.BOOL, metavar="true|false", **attributes)


def line(*cells: tuple[int, object]) -> None:
    """Print cells, each padded to its width."""
    click.echo("  ".join(f"{text!s:<{width}}" for width, text in cells).rstrip())


def time_text(ms: int) -> str:
    """A time as the tool shows it; empty for None."""
    return f"{date_of(ms).astimezone():%Y-%m-%d %H:%M:%S},{ms % 1_000:03}" if ms > 0 else ""


def time_ms(text: str) -> int:
    """Milliseconds since the epoch of `now`, of a number of them, or of `2026-01-31#12:00:00:000`, local time."""
    if text in ("now", "currentTimeMillis"):
        return round(datetime.now().timestamp() * 1_000)
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return round(datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f").timestamp() * 1_000)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither now, milliseconds nor a time like 2026-01-31#12:00:00:000"
        ) from None


def properties_lines(title: str, settings: dict[str, str]) -> Iterator[str]:
    """Settings as the tool shows them."""
    yield f"============{title}============"
    yield from (f"{key:<50}=  {settings[key]}" for key in sorted(settings))
