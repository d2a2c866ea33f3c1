"""What commands share: options, how their values are read, and the cluster they ask."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from rmqpy.config.client import ClientConfig
    from rmqpy.remoting.client import BlockingCaller
    from rmqpy.remoting.nameservers import NameServers

R = TypeVar("R")

_Command = TypeVar("_Command", bound=Callable[..., Any])


def options(*declared: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Several options or arguments as one decorator; help shows them in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return add


def cluster_options(command: _Command) -> _Command:
    """Add `-n/--namesrv` and `--timeout`, handed to the command as `namesrv` and `timeout`."""
    command = click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=3.0,
        show_default=True,
        metavar="SECONDS",
        help="How long one answer may take.",
    )(command)
    return click.option(
        "-n",
        "--namesrv",
        envvar="NAMESRV_ADDR",
        default="127.0.0.1:9876",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[;…]",
        help="Name servers of the cluster.",
    )(command)


def client_config(namesrv: str, timeout: float) -> "ClientConfig":
    """What the options of `cluster_options` mean to a client."""
    from rmqpy.config.client import ClientConfig, addresses

    return ClientConfig(namesrv=addresses(namesrv), connect_timeout=timeout, request_timeout=timeout)


@contextmanager
def asking(namesrv: str, timeout: float) -> "Iterator[tuple[BlockingCaller, NameServers]]":
    """What administration asks with: connections that last as long as the command."""
    from rmqpy._native import Client
    from rmqpy.config.client import addresses
    from rmqpy.remoting.client import BlockingCaller
    from rmqpy.remoting.nameservers import NameServers

    client = Client(connect_timeout_ms=round(timeout * 1000))
    try:
        yield BlockingCaller(client), NameServers(addresses(namesrv), timeout=timeout)
    finally:
        client.close()


def wait_for(work: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine over such a caller."""
    from rmqpy.remoting.client import run

    return run(work)


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def place(value: str) -> Literal["begin", "end"] | int | datetime:
    """Where in a topic to begin: `begin`, `end`, an offset, a time, or an age like `10m`."""
    match value:
        case "begin" | "end":
            return value
        case _ if value.isascii() and value.isdigit():
            return int(value)
        case _ if value[:-1].isascii() and value[:-1].isdigit() and value[-1] in _UNITS:
            return datetime.now(UTC) - timedelta(**{_UNITS[value[-1]]: int(value[:-1])})
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither begin, end, an offset, a time like 2026-01-31T12:00 nor an age like 10m"
        ) from None
    return moment if moment.tzinfo else moment.astimezone()


def name_and_value(value: str) -> tuple[str, str]:
    """`name=value`."""
    name, equals, text = value.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{value!r} is not name=value")
    return name, text
