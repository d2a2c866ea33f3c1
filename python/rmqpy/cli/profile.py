"""`rmqpy profile`: named clusters of the user."""

import click

from rmqpy.cli.command import Rows, columns, printed
from rmqpy.cli.output import note


@click.command()
@printed
@columns("profile", "namesrv", "timeout", "namespace", "access_key", "tls")
def command() -> Rows:
    """List profiles. Choose one with -p NAME or $RMQPY_PROFILE.

    \b
    rmqpy profile
    """
    from rmqpy.config import profiles

    note(f"profiles of {profiles.path()}")
    return [
        {
            "profile": name,
            "namesrv": profile.namesrv,
            "timeout": profile.timeout,
            "namespace": profile.namespace,
            "access_key": profile.access_key,
            "tls": profile.tls is not None,
        }
        for name, profile in sorted(profiles.load().items())
    ]
