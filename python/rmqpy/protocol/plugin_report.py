"""Plug-ins of a broker in its runtime information, where every tool finds them. Pure; any thread."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rmqpy.protocol import report_rows

#: The key, specific to rmqpy; present if there are plug-ins.
KEY: Final = "plugins"


class PluginState(NamedTuple):
    """One plug-in."""

    name: str
    #: Its kind, source and counts, in words.
    text: str


def write(states: Iterable[PluginState]) -> dict[str, str]:
    """The entry of the table; empty without plug-ins."""
    rows = [list(each) for each in states]
    return report_rows.write(KEY, rows)


def read(table: Mapping[str, str]) -> list[PluginState]:
    """Parse the plug-ins that a broker reports.

    >>> one = PluginState("audit", "follower of audit 1.0, 7 messages")
    >>> read(write([one])) == [one], read({KEY: "[[1]]"}), read({})
    (True, [], [])
    """
    found = []
    for each in report_rows.read(KEY, table):
        match each:
            case [str(name), str(text)]:
                found.append(PluginState(name, text))
    return found
