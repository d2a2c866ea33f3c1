"""Requests about schedules. Runs on the event loop."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmqpy.clock import Clock
from rmqpy.control.schedules.scheduler import Scheduler, progress_key
from rmqpy.control.schedules.table import ProgressFile, Schedules
from rmqpy.control.schedules.timetable import fault
from rmqpy.control.settings import LiveConfig
from rmqpy.control.topics.table import Topics
from rmqpy.message import Message
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.schedules import (
    CATCH_UP,
    DeleteSchedule,
    GetSchedules,
    PutSchedule,
    Schedule,
    ScheduleState,
    ScheduleStates,
)
from rmqpy.protocol.topics import Permission
from rmqpy.remoting.server import Refused, handles

#: The largest body of a schedule, because the table is kept in memory and written as a whole.
BODY_BYTES_MAX: Final = 64 << 10
_NAME: Final = re.compile(r"[\w.-]{1,127}", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleHandlers:
    """Lists and changes schedules."""

    _config: LiveConfig
    _schedules: Schedules
    _progress: ProgressFile
    _scheduler: Scheduler
    _topics: Topics
    _clock: Clock
    _log_end: Callable[[], int]

    @handles(GetSchedules)
    async def states(self, ask: GetSchedules) -> ScheduleStates:
        # Before the end of the log, which must have all of them.
        armed_ms = dict(self._progress.armed_ms)
        log_end = self._log_end()
        table = self._schedules.table
        schedules = [table[name] for name in sorted(table) if ask.name in (None, name)]
        if ask.is_brief:
            states = [ScheduleState(schedule=each) for each in schedules]
        else:
            # A thousand cron expressions would block the loop.
            states = await asyncio.to_thread(lambda: list(map(self._scheduler.state, schedules)))
        return ScheduleStates(states=states, armed_ms=armed_ms, log_end=log_end)

    @handles(PutSchedule)
    async def put(self, ask: PutSchedule) -> None:
        now_ms = self._clock.wall_ms()
        async with self._scheduler.paused:
            before = self._schedules.next_table.get(ask.body.name)
            if before is None and ask.is_change:
                raise _unknown(ask.body.name)
            if before is not None and not ask.is_change:
                raise _invalid(f"schedule {ask.body.name!r} exists")
            schedule = dataclasses.replace(
                ask.body,
                created_ms=now_ms if before is None else before.created_ms,
                generation=now_ms if before is None else max(now_ms, before.generation + 1),
                from_ms=now_ms,
            )
            self._check(schedule)
            armed_ms = 0 if before is None else self._progress.armed_ms.get(progress_key(before), 0)
            await self._schedules.set(schedule)
            if before is not None:
                await self._scheduler.recall(before, armed_ms)

    @handles(DeleteSchedule)
    async def delete(self, ask: DeleteSchedule) -> None:
        async with self._scheduler.paused:
            before = self._schedules.next_table.get(ask.name)
            if before is None:
                raise _unknown(ask.name)
            armed_ms = self._progress.armed_ms.get(progress_key(before), 0)
            await self._schedules.remove(ask.name)
            await self._scheduler.recall(before, armed_ms)

    def _check(self, schedule: Schedule) -> None:
        if not self._config.now.store.has_timers:
            raise _invalid("schedules need timed messages: set timerWheelEnable=true")
        if not _NAME.fullmatch(schedule.name):
            raise _invalid(
                f"{schedule.name!r} is not a name: use up to 127 letters, digits, '.', '-' and '_'"
            )
        if schedule.catch_up not in CATCH_UP:
            raise _invalid(f"the rule for catching up must be one of {', '.join(CATCH_UP)}")
        topic = self._topics.table.get(schedule.topic)
        if topic is None or self._topics.is_system(schedule.topic):
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {schedule.topic!r} does not exist at this broker"
            )
        if not topic.perm & Permission.WRITE:
            raise Refused(ResponseCode.NO_PERMISSION, f"topic {schedule.topic!r} accepts no messages")
        try:
            body = base64.b64decode(schedule.body, validate=True)
            Message(
                schedule.topic,
                body,
                tag=schedule.tag or None,
                keys=schedule.keys.split(),
                properties=schedule.properties,
            )
        except ValueError as error:
            raise _invalid(str(error)) from None
        if len(body) > BODY_BYTES_MAX:
            raise _invalid(f"the body has {len(body)} bytes, of {BODY_BYTES_MAX}: send a reference instead")
        if (reason := fault(schedule)) is not None:
            raise _invalid(reason)


def _invalid(remark: str) -> Refused:
    return Refused(ResponseCode.INVALID_PARAMETER, remark)


def _unknown(name: str) -> Refused:
    return _invalid(f"the broker has no schedule {name!r}")
