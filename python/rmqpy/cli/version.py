"""`rmqpy version`: what is installed, for a bug report."""

import platform

import click

from rmqpy import __version__
from rmqpy.cli.command import Rows, printed


@click.command()
@printed
def command() -> Rows:
    """Version of rmqpy and of what it runs on.

    \b
    rmqpy version
    """
    from rmqpy import _native

    return {
        "rmqpy": __version__,
        "native": _native.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
