"""Endpoints for schedules: list, pause, resume, delete."""

from typing import NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.schedules import Schedule
from rmqpy.console.api.message_rows import shown_preview
from rmqpy.console.endpoints import change, rows


class ScheduleRow(NamedTuple):
    """A schedule in a list."""

    name: str
    #: The cron expression, or empty, with its time zone; and the interval in seconds, or 0.
    cron: str
    zone: str
    every: float
    topic: str
    broker: str
    #: The next occurrence, and the last sent one, in ms since the epoch; 0 without one.
    next_ms: int
    last_ms: int
    paused: bool
    #: Why it does not send, or empty.
    fault: str
    catch_up: str
    tag: str | None
    keys: list[str]
    #: The beginning of the body.
    preview: str


@rows("/schedules", sort="name")
async def schedules(admin: AsyncAdmin) -> list[ScheduleRow]:
    """List all schedules, with the next and the last occurrence; Apache's brokers have none."""
    return [_row(each) for each in await admin.schedules()]


@change("POST", "/schedules/{schedule}/pause")
async def pause_schedule(admin: AsyncAdmin, schedule: str) -> None:
    """Send nothing for a schedule until it is resumed."""
    await admin.pause_schedule(schedule)


@change("POST", "/schedules/{schedule}/resume")
async def resume_schedule(admin: AsyncAdmin, schedule: str) -> None:
    """Resume a schedule. Occurrences of the pause are not sent."""
    await admin.resume_schedule(schedule)


@change("DELETE", "/schedules/{schedule}")
async def delete_schedule(admin: AsyncAdmin, schedule: str) -> None:
    """Delete a schedule, and recall its pending message."""
    await admin.delete_schedule(schedule)


def _row(schedule: Schedule) -> ScheduleRow:
    return ScheduleRow(
        schedule.name,
        schedule.cron,
        schedule.zone,
        schedule.every,
        schedule.topic,
        schedule.broker,
        schedule.next_ms,
        schedule.last_ms,
        schedule.paused,
        schedule.fault,
        schedule.catch_up,
        schedule.tag,
        list(schedule.keys),
        shown_preview(schedule.body),
    )
