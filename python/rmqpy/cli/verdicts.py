"""How verdicts are printed, and the exit code they come to."""

from typing import TYPE_CHECKING

import click

from rmqpy.cli.output import Format, show

if TYPE_CHECKING:
    from rmqpy.admin.verdicts import Verdict

disk_free_option = click.option(
    "--disk-free-min",
    type=click.IntRange(0),
    default=1024,
    show_default=True,
    metavar="MIB",
    help="A disk with less room is bad.",
)


def tell_verdicts(verdicts: "list[Verdict]", output: Format) -> int:
    """Print one line for each; 1 when one is bad."""
    show(
        [
            {"level": each.level, "check": each.check, "found": each.found, "advice": each.advice}
            for each in verdicts
        ],
        output,
    )
    return 1 if any(verdict.level == "bad" for verdict in verdicts) else 0
