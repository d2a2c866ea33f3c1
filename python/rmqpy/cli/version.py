"""`rmqpy version`: versions for a bug report."""

import platform
from importlib import metadata

import click

from rmqpy.cli.command import Rows, printed


@click.command()
@printed
def command() -> Rows:
    """Show the versions of rmqpy and its platform.

    \b
    rmqpy version
    """
    from rmqpy import _native

    return {
        "rmqpy": metadata.version("rmqpy"),
        "native": _native.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
