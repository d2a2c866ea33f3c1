"""Options of servers: settings as `key=value`, warnings about them, and logs; the run of a server with them."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from rmqpy import __version__
from rmqpy.cli.options import EXISTING_FILE, flag, option_value, options

if TYPE_CHECKING:
    from rmqpy.config.keys import LoadedConfig, Settings
    from rmqpy.config.servers import ServerConfig
    from rmqpy.controller import ControllerServer
    from rmqpy.namesrv import NameServer
    from rmqpy.proxy import ProxyServer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Config = TypeVar("_Config", bound="ServerConfig")


def log_options(command: _Command) -> _Command:
    """Add `--log-format` and `--log-level`, which take effect before the command runs and are not passed to it."""
    return options(
        click.option(
            "--log-format",
            type=click.Choice(["auto", "text", "json"]),
            default="auto",
            show_default=True,
            envvar="RMQPY_LOG_FORMAT",
            is_eager=True,
            expose_value=False,
            callback=_remember,
            help="Format of logs on standard error; auto is text on a terminal and JSON lines otherwise.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            show_default=True,
            envvar="RMQPY_LOG_LEVEL",
            expose_value=False,
            callback=_install,
        ),
    )(command)


def config_option(help_text: str) -> Callable[[_Command], _Command]:
    """Add `-c/--config`, an existing file."""
    return click.option("-c", "--config", type=EXISTING_FILE, help=help_text)


def settings_argument(**attributes: Any) -> Callable[[_Command], _Command]:
    """Add `settings`: KEY=VALUE words, passed to the command as a mapping."""
    return click.argument(
        "settings",
        nargs=-1,
        callback=lambda context, argument, words: parse_settings(words),
        **{"metavar": "[KEY=VALUE]..."} | attributes,
    )


#: `-n/--namesrv` of a server that has `namesrvAddr`.
namesrv_option = click.option(
    "-n",
    "--namesrv",
    metavar="HOST:PORT[;…]",
    callback=option_value,
    help="Name servers; the same as namesrvAddr=…",
)

#: `-p`, passed to the command as `is_printing`.
print_option = click.option("-p", "is_printing", is_flag=True, help="Print all effective settings and exit.")


def server_options(file: str, *more: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Add the options of a server: settings, their `file`, those of its role, `-p` and logs."""
    return options(settings_argument(), config_option(file), *more, print_option, log_options)


def run_server(
    reading: "LoadedConfig[_Config]",
    server_of: "Callable[[_Config], NameServer | ControllerServer | ProxyServer]",
    is_printing: bool,
) -> None:
    """Run a name server, controller or proxy until a signal, or print its settings."""
    import asyncio

    from rmqpy.server import serve

    log_warnings(reading.warnings)
    if is_printing:
        print_settings(reading.config)
        return
    server, role = server_of(reading.config), reading.config.ROLE
    asyncio.run(serve(server, lambda: click.echo(f"rmqpy {__version__}: {role} {server.address} is ready")))


def print_settings(config: "Settings", only: Collection[str] | None = None) -> None:
    """Print settings as lines of a file; with `only`, just these keys."""
    for key, value in config.write().items():
        if only is None or key in only:
            click.echo(f"{key}={value}")


def _remember(context: click.Context, option: click.Parameter, form: str) -> None:
    context.meta["rmqpy.log_format"] = form


def _install(context: click.Context, option: click.Parameter, level: str) -> None:
    from rmqpy.monitor.logs import install

    if context.get_parameter_source("log_level") is ParameterSource.DEFAULT:
        level = "debug" if flag("verbose") else "error" if flag("quiet") else level
    install(context.meta["rmqpy.log_format"], level)


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """Return `key=value` words as a mapping; the last of equal keys wins, as in a file."""
    settings = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise click.UsageError(f"{word!r} is not KEY=VALUE")
        settings[key] = value
    return settings


def log_warnings(warnings: Iterable[str]) -> None:
    """Log warnings about a configuration, so that JSON logs stay JSON."""
    log = logging.getLogger("rmqpy.config")
    for warning in warnings:
        log.warning("%s", warning)
