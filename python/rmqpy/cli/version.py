"""`rmqpy version`: what is installed, for a bug report."""

import platform

import click

from rmqpy import __version__
from rmqpy.cli.output import Format, output_option, show


@click.command()
@output_option
def command(output: Format) -> None:
    """Version of rmqpy and of what it runs on.

    \b
    rmqpy version
    """
    from rmqpy import _native

    show(
        {
            "rmqpy": __version__,
            "native": _native.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        output,
    )
