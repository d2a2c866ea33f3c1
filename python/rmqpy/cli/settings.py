"""Settings of servers on the command line: `key=value`, as in broker.conf, and what is to be said about them."""

from collections.abc import Iterable

import click


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """`key=value` words as a mapping; the last of two equal keys wins, as in a file."""
    settings = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not (key and equals):
            raise click.UsageError(f"{word!r} is not KEY=VALUE")
        settings[key] = value
    return settings


def tell(notices: Iterable[str]) -> None:
    """Print what a configuration's reader wants to be known, on stderr."""
    for notice in notices:
        click.echo(f"note: {notice}", err=True)
