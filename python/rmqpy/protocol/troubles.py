"""Troubles of a broker in its runtime information, where every tool finds them. Pure; any thread."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from rmqpy.findings import Finding, Trouble
from rmqpy.protocol import report_rows

#: The key, specific to rmqpy; present while there are problems.
KEY: Final = "troubles"


def write(troubles: Iterable[Trouble]) -> dict[str, str]:
    """The entry of the table; empty without problems."""
    rows = [[each.check, each.level, *each.finding, each.refuses] for each in troubles]
    return report_rows.write(KEY, rows)


def read(table: Mapping[str, str]) -> list[Trouble]:
    """Parse the problems that a broker reports.

    >>> one = Trouble("disk of a", "bad", Finding("it is full", "make room"), refuses=True)
    >>> read(write([one])) == [one], read({KEY: "[[1]]"}), read({})
    (True, [], [])
    """
    found = []
    for each in report_rows.read(KEY, table):
        match each:
            case [str(check), "warn" | "bad" as level, str(text), str(advice), bool(refuses)]:
                found.append(Trouble(check, cast("str", level), Finding(text, advice), refuses))  # type: ignore[arg-type]
    return found
