"""Plumbing of the commands: decorators that declare shared options, open what a command works with, print its result.

`cluster_command` is what most need: an `Admin` goes in, rows come out. `with_admin` and `printed` are its halves, for
commands that print by themselves or ask no cluster. What is opened is closed when the command returns; errors become
exit codes in one place, `rmqpy.cli.run`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from rmqpy.cli.exits import USAGE
from rmqpy.cli.options import cluster_options, connect
from rmqpy.cli.output import Format, Record, output_option, show

_R = TypeVar("_R")

Rows = Record | Sequence[Record]


class Result(NamedTuple):
    """Rows to print, and an exit code that may be another than 0."""

    rows: Rows
    exit_code: int


def with_admin(command: Callable[..., _R]) -> Callable[..., _R]:
    """Add the options of a cluster, and hand an open `admin` to the command in their place."""

    @cluster_options
    @functools.wraps(command)
    def run(namesrv: str, timeout: float, **given: Any) -> _R:
        with connect(namesrv, timeout) as admin:
            return command(admin=admin, **given)

    return run


def printed(command: Callable[..., Rows | Result]) -> Callable[..., int]:
    """Add `-o/--output`, and print in that format what the command returns."""

    @output_option
    @functools.wraps(command)
    def run(output: Format, **given: Any) -> int:
        result = command(**given)
        rows, exit_code = result if isinstance(result, Result) else (result, 0)
        show(rows, output)
        return exit_code

    return run


def cluster_command(command: Callable[..., Rows | Result]) -> Callable[..., int]:
    """A command that asks a cluster through `admin` and returns what is to be printed."""
    return with_admin(printed(command))


def check_given(settings: Mapping[str, object]) -> None:
    """Refuse a change without a single setting."""
    if all(value is None for value in settings.values()):
        raise click.UsageError("nothing to change: name a setting")


yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirmed(question: str) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Add `--yes`; without it the question, filled in with the command's parameters, has to be answered first."""

    def decorate(command: Callable[..., _R]) -> Callable[..., _R]:
        @yes_option
        @functools.wraps(command)
        def run(yes: bool, **given: Any) -> _R:
            if not yes:
                confirm(question.format_map(given))
            return command(**given)

        return run

    return decorate


class _Unanswered(click.ClickException):
    """Wrong usage, of which the lines about options would say nothing."""

    exit_code = USAGE


def confirm(question: str) -> None:
    """Ask on standard error. No ends the command with exit code 1; where nobody can answer, it is a usage error."""
    try:
        is_confirmed = click.confirm(question, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            click.echo(err=True)
            raise _Unanswered("nobody is there to answer: give --yes") from None
        raise
    if not is_confirmed:
        raise click.ClickException("nothing was done: the answer was no")
