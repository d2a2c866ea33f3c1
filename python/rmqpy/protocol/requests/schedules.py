"""Schedules: messages that a broker sends at times of a calendar. rmqpy only."""

from dataclasses import field
from typing import Final

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, request
from rmqpy.protocol.topics import DataVersion

#: Rules for occurrences that were missed while no broker ran.
CATCH_UP: Final = ("latest", "all", "none")


@record
class Schedule:
    """A message to a topic, at each time of a cron expression or at an interval."""

    name: str
    topic: Resource
    #: Base64.
    body: str
    #: Either five fields, in the time zone, or `every_ms`.
    cron: str = ""
    every_ms: int = 0
    zone: str = "UTC"
    tag: str = ""
    keys: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    catch_up: str = "latest"
    is_paused: bool = False
    created_ms: int = 0
    #: Differs after each change, so that occurrences of earlier settings have other keys.
    generation: int = 0
    #: Occurrences from this time on are sent: that of the creation or of the last change.
    from_ms: int = 0


@record
class ScheduleTable:
    """The content of `schedules.json`."""

    data_version: DataVersion = DataVersion()
    schedules: dict[str, Schedule] = field(default_factory=dict)


@record
class ScheduleProgress:
    """The content of `scheduleProgress.json`: the latest occurrence of each schedule that is in the log, by generation
    and name."""

    data_version: DataVersion = DataVersion()
    armed_ms: dict[str, int] = field(default_factory=dict)


@record
class ScheduleState:
    """A schedule with its next and last occurrence, 0 without one, and why it does not send."""

    schedule: Schedule
    next_ms: int = 0
    last_ms: int = 0
    fault: str = ""


@record
class ScheduleStates:
    """All schedules of a broker, and the end of the log at that time, for slaves."""

    states: list[ScheduleState] = field(default_factory=list)
    armed_ms: dict[str, int] = field(default_factory=dict)
    log_end: int = 0


@request(RequestCode.RMQPY_GET_SCHEDULES, needs=cluster(Action.GET))
class GetSchedules(Request[ScheduleStates]):
    """All schedules of a broker, or one of them."""

    name: str | None = None
    #: Leave out the times of occurrences, which take a moment for many schedules.
    is_brief: bool = False


@request(RequestCode.RMQPY_PUT_SCHEDULE, needs=cluster(Action.UPDATE))
class PutSchedule(Request[None]):
    """Create a schedule, or with `is_change` replace an existing one."""

    is_change: bool = False
    body: Schedule


@request(RequestCode.RMQPY_DELETE_SCHEDULE, needs=cluster(Action.UPDATE))
class DeleteSchedule(Request[None]):
    """Delete a schedule, and recall its pending message."""

    name: str
