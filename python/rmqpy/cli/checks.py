"""Results of health checks on the command line, and their exit code."""

from typing import TYPE_CHECKING

from rmqpy.cli.command import Result
from rmqpy.cli.options import number

if TYPE_CHECKING:
    from rmqpy.admin.checks import CheckResult

disk_free_option = number(
    "--disk-free-min", low=0, default=1024, metavar="MIB", help="Report disks with less free space as bad."
)


def report(checks: "list[CheckResult]") -> Result:
    """Return a row for each check, and exit code 1 when one is bad."""
    rows = [
        {"level": each.level, "check": each.check, "found": each.found, "advice": each.advice}
        for each in checks
    ]
    return Result(rows, 1 if any(each.level == "bad" for each in checks) else 0)
