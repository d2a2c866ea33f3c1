"""What commands share: options, how their values are read, and the cluster they ask.

Where the name servers are is said by, in this order: the option, `$NAMESRV_ADDR`, the profile, this machine.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.config.client import ClientConfig
    from rmqpy.config.profiles import Profile

_Command = TypeVar("_Command", bound=Callable[..., Any])

DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
DEFAULT_TIMEOUT_S: Final = 3.0
#: What a shell waits for an answer of the cluster.
COMPLETION_S: Final = 0.3
_PROFILE: Final = "rmqpy.profile"


def options(*declared: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Several options or arguments as one decorator; help shows them in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return add


def cluster_options(command: _Command) -> _Command:
    """Add `-n/--namesrv`, `--timeout` and `-p/--profile`; the command gets the first two."""
    return options(
        click.option(
            "-p",
            "--profile",
            metavar="NAME",
            is_eager=True,
            expose_value=False,
            envvar="RMQPY_PROFILE",
            callback=_remember,
            help="Take name servers and timeout from this profile: rmqpy profile.",
        ),
        click.option(
            "-n",
            "--namesrv",
            envvar="NAMESRV_ADDR",
            callback=_namesrv,
            show_envvar=True,
            metavar="HOST:PORT[;…]",
            help=f"Name servers of the cluster. [default: that of the profile, or {DEFAULT_NAMESRV}]",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            callback=_timeout,
            metavar="SECONDS",
            help=f"How long one answer may take. [default: {DEFAULT_TIMEOUT_S}]",
        ),
    )(command)


def client_config(namesrv: str, timeout: float) -> "ClientConfig":
    """What the options of `cluster_options` mean to a client."""
    from rmqpy.config.client import ClientConfig

    return ClientConfig(namesrv=namesrv, connect_timeout=timeout, request_timeout=timeout)


def connect(namesrv: str, timeout: float) -> "Admin":
    """The cluster, over connections that last as long as the command."""
    from rmqpy.admin.client import Admin

    return Admin(client_config(namesrv, timeout))


def _complete(ask: "Callable[[Admin], list[str]]") -> Callable[..., list[str]]:
    """Completes names the cluster knows, as long as it answers at once."""

    def names(context: click.Context, option: click.Parameter, typed: str) -> list[str]:
        from rmqpy.errors import RocketMQError

        try:
            with connect(context.params.get("namesrv") or DEFAULT_NAMESRV, COMPLETION_S) as admin:
                return [name for name in ask(admin) if name.startswith(typed)]
        except RocketMQError:
            return []

    return names


complete_topics = _complete(lambda admin: admin.topics())
complete_groups = _complete(lambda admin: admin.groups())
complete_brokers = _complete(lambda admin: sorted({state.broker for state in admin.brokers()}))


def _remember(context: click.Context, option: click.Parameter, name: str | None) -> None:
    if name is not None:
        from rmqpy.config import profiles

        context.meta[_PROFILE] = profiles.get(name)


def _namesrv(context: click.Context, option: click.Parameter, given: str | None) -> str:
    profile: Profile | None = context.meta.get(_PROFILE)
    return given or (profile and profile.namesrv) or DEFAULT_NAMESRV


def _timeout(context: click.Context, option: click.Parameter, given: float | None) -> float:
    profile: Profile | None = context.meta.get(_PROFILE)
    return given or (profile and profile.timeout) or DEFAULT_TIMEOUT_S


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


def moment(value: str) -> datetime:
    """A time, or an age like `10m`."""
    found = place(value)
    if not isinstance(found, datetime):
        raise click.BadParameter(f"{value!r} is neither a time like 2026-01-31T12:00 nor an age like 10m")
    return found
