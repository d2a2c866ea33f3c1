"""Decorators of commands: shared options, the open cluster, printed results.

Most commands need `cluster_command`: it passes an `Admin` and prints the returned rows. `with_admin` and `printed` are
its halves, for commands that print by themselves or need no cluster. What a decorator opens it closes when the command
returns. `rmqpy.cli.run` maps errors to exit codes.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from rmqpy.cli.destroying import QUESTIONS
from rmqpy.cli.exits import USAGE
from rmqpy.cli.options import cluster_options, connect
from rmqpy.cli.output import Format, Record, note, output_option, show

_R = TypeVar("_R")

Rows = Record | Sequence[Record]

_COLUMNS: Final = "rmqpy_columns"


class Result(NamedTuple):
    """Rows to print, and an exit code other than 0 where needed."""

    rows: Rows
    exit_code: int
    #: The keys of the rows, needed when there are none.
    columns: Sequence[str] = ()


def with_admin(command: Callable[..., _R]) -> Callable[..., _R]:
    """Add the options of a cluster, and pass an open `admin` to the command instead."""

    @cluster_options
    @functools.wraps(command)
    def run(namesrv: str, timeout: float, **given: Any) -> _R:
        with connect(namesrv, timeout) as admin:
            try:
                return command(admin=admin, **given)
            finally:
                if (missing := admin.left_out()) is not None:
                    note(f"the result is incomplete: {missing}")

    return run


def printed(command: Callable[..., Rows | Result]) -> Callable[..., int]:
    """Add `-o/--output`, and print the returned rows in that format."""

    @output_option
    @functools.wraps(command)
    def run(output: Format, **given: Any) -> int:
        result = command(**given)
        if not isinstance(result, Result):
            result = Result(result, 0, getattr(command, _COLUMNS, ()))
        show(result.rows, output, columns=result.columns)
        return result.exit_code

    return run


def columns(*names: str) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Name the keys of the rows that a command returns, for formats with headings."""

    def decorate(command: Callable[..., _R]) -> Callable[..., _R]:
        setattr(command, _COLUMNS, names)
        return command

    return decorate


def cluster_command(command: Callable[..., Rows | Result]) -> Callable[..., int]:
    """A command that gets an open `admin` and returns rows to print."""
    return with_admin(printed(command))


def check_given(settings: Mapping[str, object]) -> None:
    """Refuse a change that names no setting."""
    if all(value is None for value in settings.values()):
        raise click.UsageError("nothing to change: name a setting")


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirmed(command: Callable[..., _R]) -> Callable[..., _R]:
    """Add `--yes`; without it the user must confirm the command's question first."""

    @yes_option
    @functools.wraps(command)
    def run(yes: bool, **given: Any) -> _R:
        if not yes:
            confirm(**given)
        return command(**given)

    return run


class _Unanswered(click.ClickException):
    """A usage error to which usage lines would add nothing."""

    exit_code = USAGE


def confirm(**facts: object) -> None:
    """Ask the question of this command on standard error. "No" exits with code 1; without a terminal it is a usage
    error."""
    _, _, path = click.get_current_context().command_path.partition(" ")
    question = QUESTIONS[path].format_map(facts)
    try:
        is_confirmed = click.confirm(question, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            click.echo(err=True)
            raise _Unanswered("no confirmation possible without a terminal: give --yes") from None
        raise
    if not is_confirmed:
        raise click.ClickException("cancelled")
