"""Endpoints for histories: charts of one topic, group or broker, and the short lines in rows of lists."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import note_missing
from rmqpy.admin.history import ChartEvent, Series
from rmqpy.console.endpoints import value
from rmqpy.errors import RocketMQError

#: Values in the line of a row.
LINE_POINTS: Final = 60
_BROKER: Final = ("disk", "p99_ms", "behind_bytes", "lag", "dead_letters")


class Chart(NamedTuple):
    """Histories of one subject, at common times. Unknown values are null."""

    step_ms: int
    times_ms: list[int]
    series: dict[str, list[float | None]]
    marks: list[ChartEvent]
    #: Brokers without a history: turned off, or of Apache.
    without: list[str]


@value("/history/topics/{topic}")
async def topic_history(admin: AsyncAdmin, topic: str) -> Chart:
    """Return the recent messages a second into a topic."""
    note_missing()
    return _chart(await admin.history(["in"], [topic]), topic, subject="")


@value("/history/groups/{group}")
async def group_history(admin: AsyncAdmin, group: str) -> Chart:
    """Return a group's recent messages a second, pending messages and dead letters."""
    note_missing()
    return _chart(await admin.history(["out", "lag", "dead_letters"], [group]), group, subject=group)


@value("/history/brokers/{broker}")
async def broker_history(admin: AsyncAdmin, broker: str) -> Chart:
    """Return a broker's recent rates, pending messages, dead letters, use of the disk, latency and replication lag."""
    rates = await admin.history(["in", "out"], [""], broker=broker)
    own = await admin.history(["broker"], _BROKER, broker=broker)
    series = {kind: rows[""] for kind, rows in rates.values.items() if "" in rows} | own.values["broker"]
    return Chart(own.step_ms, own.times_ms, series, own.marks, own.without)


def _chart(found: Series, name: str, *, subject: str) -> Chart:
    series = {kind: rows[name] for kind, rows in found.values.items() if name in rows}
    # A reset concerns one group only.
    marks = [each for each in found.marks if each.subject in (each.broker, subject)]
    return Chart(found.step_ms, found.times_ms, series, marks, found.without)


async def lines(admin: AsyncAdmin, kind: str, names: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the line of each name: recent values, the largest of each piece; empty without any history."""
    note_missing()
    try:
        found = await admin.history([kind], names)
    except RocketMQError:
        return {}
    return {name: _shorter(row) for name, row in found.values[kind].items()}


def _shorter(row: list[float | None]) -> list[float | None]:
    piece = -(-len(row) // LINE_POINTS) or 1
    pieces = [row[begin : begin + piece] for begin in range(0, len(row), piece)]
    return [max((value for value in each if value is not None), default=None) for each in pieces]
