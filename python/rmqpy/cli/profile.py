"""`rmqpy profile`: the clusters somebody has given names to."""

import click

from rmqpy.cli.output import Format, note, output_option, show


@click.command()
@output_option
def command(output: Format) -> None:
    """List profiles. Commands take one with -p NAME, or from $RMQPY_PROFILE.

    \b
    rmqpy profile
    """
    from rmqpy.config import profiles

    note(f"profiles of {profiles.path()}")
    rows = [
        {"profile": name, "namesrv": profile.namesrv, "timeout": profile.timeout}
        for name, profile in sorted(profiles.load().items())
    ]
    show(rows, output)
