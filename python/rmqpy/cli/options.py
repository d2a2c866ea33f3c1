"""Shared options of commands.

Name servers come from the option, `$NAMESRV_ADDR`, the profile or this machine, in this order; the namespace likewise.
Most options may also stand before the command: such a value is kept in the context's `meta`, which all contexts of a
run share, until the option itself is read.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from rmqpy._native import Namespace
    from rmqpy.admin.client import Admin
    from rmqpy.config.client import ClientConfig
    from rmqpy.config.profiles import Profile
    from rmqpy.config.tls import TLS

_Command = TypeVar("_Command", bound=Callable[..., Any])

EXISTING_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
DEFAULT_TIMEOUT_S: Final = 3.0
#: Time that shell completion waits for the cluster.
COMPLETION_S: Final = 0.3
_PROFILE: Final = "rmqpy.profile"
_NAMESPACE: Final = "rmqpy.namespace"
_ACCESS_KEY: Final = "rmqpy.access_key"
_SECRET_KEY: Final = "rmqpy.secret_key"
_TLS: Final = "rmqpy.tls."
_BEFORE: Final = "rmqpy.before."
_NAMESRV: Final = "HOST:PORT[;…]"
#: TLS options with a value; `--tls-` goes before the name.
_TLS_OPTIONS: Final = (
    ("ca", "FILE", "CA certificates that servers are checked against, PEM. [default: those of the system]"),
    ("cert", "FILE", "Certificate of this client, PEM."),
    ("key", "FILE", "Key of the certificate. [default: in the same file]"),
    ("server-name", "NAME", "Name in the servers' certificates, if it is not their address."),
)
POSITIVE: Final = click.FloatRange(min=0, min_open=True)


def options(*declared: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Several options or arguments as one decorator, in the order of the help."""

    def add(command: _Command) -> _Command:
        for option in reversed(declared):
            command = option(command)
        return command

    return add


def number(
    *names: str, low: int, high: int | None = None, default: int | None = None, **attributes: Any
) -> Callable[[_Command], _Command]:
    """An option that is an integer within bounds."""
    bounds = click.IntRange(low, high)
    return click.option(*names, type=bounds, default=default, show_default=default is not None, **attributes)


def global_options(command: _Command) -> _Command:
    """Add options that may stand before a command, where `option_value` finds them."""
    wait: Any = {"expose_value": False, "callback": _wait}
    return options(
        click.option(
            "-p",
            "--profile",
            metavar="NAME",
            **wait,
            help="Profile with name servers, timeout and namespace.",
        ),
        click.option("-n", "--namesrv", metavar=_NAMESRV, **wait, help="Name servers of the cluster."),
        click.option("--timeout", type=POSITIVE, metavar="SECONDS", **wait, help="Timeout of one request."),
        click.option("--namespace", metavar="NAME", **wait, help="Namespace of all topics and groups."),
        click.option("--access-key", metavar="NAME", **wait, help="User that signs the requests."),
        click.option("--secret-key", metavar="SECRET", **wait, help="Secret of that user."),
        click.option("--tls/--no-tls", default=None, **wait, help="Encrypt connections."),
        *(
            click.option(f"--tls-{name}", metavar=metavar, **wait, help=text.partition(" [")[0])
            for name, metavar, text in _TLS_OPTIONS
        ),
        click.option(
            "--tls-insecure", is_flag=True, default=None, **wait, help="Do not check servers' certificates."
        ),
        click.option(
            "-o",
            "--output",
            metavar="FORMAT",
            **wait,
            help="table, wide, json, jsonl, csv or template=TEXT; for consume and topic tail also text.",
        ),
        click.option("-q", "--quiet", is_flag=True, **wait, help="Print only results and errors."),
        click.option("--no-color", is_flag=True, **wait, help="Use no colours, like $NO_COLOR."),
        click.option("-v", "--verbose", is_flag=True, **wait, help="Log requests and replies."),
    )(command)


def cluster_options(command: _Command) -> _Command:
    """Add `-n/--namesrv`, `--timeout`, `-p/--profile`, `--namespace`, `--access-key`, `--secret-key` and those of TLS.
    The first two are passed to the command, the others go into the configuration of its clients."""
    return options(
        click.option(
            "-p",
            "--profile",
            metavar="NAME",
            is_eager=True,
            expose_value=False,
            envvar="RMQPY_PROFILE",
            callback=_remember,
            help="Profile with name servers, timeout and namespace: rmqpy profile.",
        ),
        click.option(
            "-n",
            "--namesrv",
            envvar="NAMESRV_ADDR",
            callback=_namesrv,
            show_envvar=True,
            metavar=_NAMESRV,
            help=f"Name servers of the cluster. [default: from the profile, or {DEFAULT_NAMESRV}]",
        ),
        click.option(
            "--timeout",
            type=POSITIVE,
            callback=_timeout,
            metavar="SECONDS",
            help=f"Timeout of one request. [default: {DEFAULT_TIMEOUT_S}]",
        ),
        click.option(
            "--namespace",
            envvar="RMQPY_NAMESPACE",
            show_envvar=True,
            expose_value=False,
            callback=_keeper(_NAMESPACE, lambda profile: profile.namespace),
            metavar="NAME",
            help="Namespace of all topics and groups: orders is NAME%orders. [default: from the profile, or none]",
        ),
        click.option(
            "--access-key",
            envvar="RMQPY_ACCESS_KEY",
            show_envvar=True,
            expose_value=False,
            callback=_keeper(_ACCESS_KEY, lambda profile: profile.access_key),
            metavar="NAME",
            help="User that signs the requests. [default: from the profile, or none]",
        ),
        click.option(
            "--secret-key",
            envvar="RMQPY_SECRET_KEY",
            show_envvar=True,
            expose_value=False,
            callback=_keeper(_SECRET_KEY, lambda profile: profile.secret_key),
            metavar="SECRET",
            help="Secret of the user; prefer the variable or a profile: command lines are visible to other users.",
        ),
        click.option(
            "--tls/--no-tls",
            envvar="RMQPY_TLS",
            show_envvar=True,
            default=None,
            expose_value=False,
            callback=_tls_option,
            help="Encrypt connections. [default: on if an option below or the profile asks for TLS]",
        ),
        *(
            click.option(
                f"--tls-{name}",
                envvar=f"RMQPY_TLS_{name.upper().replace('-', '_')}",
                show_envvar=True,
                expose_value=False,
                callback=_tls_option,
                metavar=metavar,
                help=text,
            )
            for name, metavar, text in _TLS_OPTIONS
        ),
        click.option(
            "--tls-insecure",
            is_flag=True,
            default=None,
            expose_value=False,
            callback=_tls_option,
            help="Do not check servers' certificates; for tests only.",
        ),
    )(command)


def option_value(context: click.Context, option: click.Parameter, given: Any) -> Any:
    """Callback of an option that may also stand before the command. A value there loses against one behind the command
    and wins over environment and default."""
    assert option.name is not None
    if context.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
        given = context.meta.get(_BEFORE + option.name, given)
    return given if given is None else option.type_cast_value(context, given)


def flag(name: Literal["no_color", "quiet", "verbose"]) -> bool:
    """The value of one of the flags of `global_options`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_BEFORE + name))


def client_config(namesrv: str, timeout: float) -> "ClientConfig":
    """Return the client configuration from the options of `cluster_options`."""
    from rmqpy.config.client import ClientConfig, Credentials

    return ClientConfig(
        namesrv=namesrv,
        connect_timeout=timeout,
        request_timeout=timeout,
        namespace=_namespace_name(),
        credentials=Credentials.of(_kept(_ACCESS_KEY), _kept(_SECRET_KEY)),
        tls=_tls(),
    )


def _tls() -> "TLS | None":
    """Return TLS settings from the options, else from the profile."""
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    profile: Profile | None = context.meta.get(_PROFILE)
    given = {
        name: context.meta[_TLS + name]
        for name in ("ca", "cert", "key", "server_name")
        if _TLS + name in context.meta
    }
    is_on, is_insecure = context.meta.get(_TLS), context.meta.get(_TLS + "insecure")
    if is_on is False:
        return None
    if not given and not is_insecure:
        known = profile.tls if profile else None
        if is_on is None or known is not None:
            return known
    from rmqpy.config.tls import TLS

    return TLS(**given, verify=not is_insecure)


def namespace() -> "Namespace | None":
    """Return the namespace named by the options, for names that no client translates."""
    from rmqpy._native import Namespace

    return Namespace(name) if (name := _namespace_name()) else None


def _namespace_name() -> str:
    return _kept(_NAMESPACE)


def _kept(name: str) -> str:
    """Return the value that an option left in the context; empty without one."""
    context = click.get_current_context(silent=True)
    return "" if context is None else context.meta.get(name, "")


def connect(namesrv: str, timeout: float) -> "Admin":
    """Connect to the cluster for the duration of the command."""
    from rmqpy.admin.client import Admin

    return Admin(client_config(namesrv, timeout))


def _complete(ask: "Callable[[Admin], list[str]]") -> Callable[..., list[str]]:
    """Complete names from the cluster, if it answers in time."""

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


def _wait(context: click.Context, option: click.Parameter, given: object) -> None:
    if given is not None:
        context.meta[f"{_BEFORE}{option.name}"] = given


def _remember(context: click.Context, option: click.Parameter, name: str | None) -> None:
    name = option_value(context, option, name)
    if name is not None:
        from rmqpy.config import profiles

        context.meta[_PROFILE] = profiles.get(name)


def _namesrv(context: click.Context, option: click.Parameter, given: str | None) -> str:
    profile: Profile | None = context.meta.get(_PROFILE)
    return option_value(context, option, given) or (profile and profile.namesrv) or DEFAULT_NAMESRV


def _timeout(context: click.Context, option: click.Parameter, given: float | None) -> float:
    profile: Profile | None = context.meta.get(_PROFILE)
    return option_value(context, option, given) or (profile and profile.timeout) or DEFAULT_TIMEOUT_S


def _keeper(
    key: str, of_profile: "Callable[[Profile], str | None]"
) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """Keep the given value, else the profile's. An empty value cancels that of environment or profile."""

    def keep(context: click.Context, option: click.Parameter, given: str | None) -> None:
        profile: Profile | None = context.meta.get(_PROFILE)
        given = option_value(context, option, given)
        context.meta[key] = given if given is not None else (profile and of_profile(profile)) or ""

    return keep


def _tls_option(context: click.Context, option: click.Parameter, given: object) -> None:
    assert option.name is not None
    given = option_value(context, option, given)
    if given is not None:
        context.meta[_TLS + option.name.removeprefix("tls").removeprefix("_")] = given
