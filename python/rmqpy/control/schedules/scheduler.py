"""Scheduler: puts the next message of each schedule into the timer log, which delivers it at its time.

Owns the rule of exactly one message per occurrence. Occurrences are armed in order, each under a unique key that
schedule and time determine. After a start, a promotion or a failed send it is not known which of them are in the log:
then the index is searched for the key first. The log is the truth: a message that survives in it is not sent again, and
a lost one is. Delivery is not repeated for a key, see the timers of the data plane.

Only a master schedules. Threads: the event loop's; a worker reads the index.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import heapq
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from rmqpy.clock import Clock
from rmqpy.control.schedules.table import ProgressFile, Schedules
from rmqpy.control.schedules.timetable import timetable
from rmqpy.errors import RocketMQError
from rmqpy.protocol import properties
from rmqpy.protocol.ids import RecallHandle, encode_recall_handle
from rmqpy.protocol.names import TIMER_TOPIC
from rmqpy.protocol.requests.messages import RecallMessage, SendMessage
from rmqpy.protocol.requests.schedules import Schedule, ScheduleState

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
#: An occurrence is armed when it is this near, or a minute less than the longest delay of timed messages.
HORIZON_MS: Final = 86_400_000
#: An occurrence that is later than this was missed, and the rule for catching up applies.
LATE_MS: Final = 60_000
#: Schedules that arm at the same time, and the occurrences of one of them in a round.
ARMING_MAX: Final = 64
ROUND_MAX: Final = 256
#: The pause after a refused message.
FAILED_MS: Final = 5_000
SEND_SECONDS: Final = 5.0
#: Copies with one key that are compared: a retried or rolled message has several.
COPIES_MAX: Final = 8
#: Properties of scheduled messages: the schedule, and the time of the occurrence in milliseconds.
SCHEDULE: Final = "SCHEDULE"
SCHEDULED_MS: Final = "SCHEDULED_MS"


class Log(Protocol):
    """The part of a store that the scheduler reads."""

    def query(
        self, topic: str, key: str, maximum: int, begin_ms: int, end_ms: int
    ) -> tuple[list[bytes], int, int]:
        """Return the records with this key."""


class OwnBroker(Protocol):
    """Requests of this broker to itself, by which its messages take the way of all others."""

    async def send(self, ask: SendMessage) -> object:
        """Store a message. Raises `RocketMQError`."""

    async def recall(self, ask: RecallMessage) -> object:
        """Recall a timed message. Raises `RocketMQError`."""


@dataclass
class _Course:
    """The state of one schedule."""

    schedule: Schedule
    #: Occurrences up to this time are in the log, or left out.
    cursor_ms: int
    #: Whether the log may have further ones.
    is_uncertain: bool = True
    fault: str = ""


class Scheduler:
    """All schedules of a master at work."""

    def __init__(
        self,
        name: str,
        schedules: Schedules,
        progress: ProgressFile,
        store: Log,
        own: OwnBroker,
        clock: Clock,
        *,
        precision_ms: int,
        delay_ms_max: int,
    ) -> None:
        """`name` is the broker's. `precision_ms` and `delay_ms_max` are settings of timed messages."""
        self._name = name
        self._schedules = schedules
        self._progress = progress
        self._store = store
        self._own = own
        self._clock = clock
        self._precision_ms = max(1, precision_ms)
        self._horizon_ms = max(0, min(HORIZON_MS, delay_ms_max - 60_000))
        self._courses: dict[str, _Course] = {}
        #: When to look at each schedule again; entries of changed schedules are skipped.
        self._due: list[tuple[int, str]] = []
        self._is_working = asyncio.Lock()
        self.is_started = False

    def start(self) -> None:
        """Follow the table from now on."""
        self.is_started = True
        for name in self._schedules.table:
            self._changed(name)
        self._schedules.on_change = self._changed

    async def look(self) -> None:
        """Arm the occurrences that have come near."""
        async with self._is_working:
            now_ms = self._clock.wall_ms()
            names = []
            while self._due and self._due[0][0] <= now_ms:
                names.append(heapq.heappop(self._due)[1])
            courses = [self._courses[name] for name in dict.fromkeys(names) if name in self._courses]
            for begin in range(0, len(courses), ARMING_MAX):
                part = courses[begin : begin + ARMING_MAX]
                await asyncio.gather(*(self._proceed(course, now_ms) for course in part))

    def state(self, schedule: Schedule) -> ScheduleState:
        """Return the times and the fault of a schedule."""
        now_ms, times = self._clock.wall_ms(), timetable(schedule)
        course = self._courses.get(schedule.name)
        last_ms = times.until(now_ms)
        armed_ms = self._progress.armed_ms.get(progress_key(schedule), 0)
        return ScheduleState(
            schedule=schedule,
            next_ms=0 if schedule.is_paused else times.after(now_ms) or 0,
            last_ms=min(last_ms, armed_ms) if last_ms is not None and last_ms >= schedule.from_ms else 0,
            fault=course.fault if course else "",
        )

    async def recall(self, schedule: Schedule, at_ms: int) -> None:
        """Recall the message of a schedule for this time, because the schedule ended or changed. A message that is due
        right now is sent nevertheless."""
        if at_ms <= self._clock.wall_ms():
            return
        # Any time in the slot of the wheel names it.
        slot_ms = (at_ms - 1) // self._precision_ms * self._precision_ms + 1
        handle = RecallHandle(schedule.topic, self._name, slot_ms, unique_key(schedule, at_ms))
        ask = RecallMessage(topic=schedule.topic, recall_handle=encode_recall_handle(handle))
        try:
            await self._own.recall(ask)
        except RocketMQError as error:
            log.warning(
                "schedule %s: its next message cannot be recalled and will be sent: %s", schedule.name, error
            )

    @property
    def paused(self) -> asyncio.Lock:
        """The lock under which schedules change, so that none is being armed meanwhile."""
        return self._is_working

    def _changed(self, name: str) -> None:
        schedule, course = self._schedules.table.get(name), self._courses.pop(name, None)
        if course is not None and (schedule is None or schedule.generation != course.schedule.generation):
            self._progress.armed_ms.pop(progress_key(course.schedule), None)
        if schedule is not None and not schedule.is_paused:
            armed_ms = self._progress.armed_ms.get(progress_key(schedule), 0)
            self._courses[name] = _Course(schedule, max(schedule.from_ms, armed_ms))
            heapq.heappush(self._due, (0, name))

    async def _proceed(self, course: _Course, now_ms: int) -> None:
        """Arm due and near occurrences, and schedule the next look."""
        schedule, times = course.schedule, timetable(course.schedule)
        again_ms = now_ms
        for _ in range(ROUND_MAX):
            if self._courses.get(schedule.name) is not course:
                return
            next_ms = times.after(course.cursor_ms)
            if next_ms is None:
                return
            if next_ms > now_ms and (course.cursor_ms > now_ms or next_ms > now_ms + self._horizon_ms):
                # One message waits at a time.
                is_waiting = course.cursor_ms > now_ms
                again_ms = course.cursor_ms if is_waiting else next_ms - self._horizon_ms
                break
            if next_ms <= now_ms - LATE_MS and schedule.catch_up != "all":
                last_ms = times.until(now_ms)
                if last_ms is not None and (last_ms > next_ms or schedule.catch_up == "none"):
                    is_left_out = schedule.catch_up == "none" and last_ms <= now_ms - LATE_MS
                    if is_left_out or last_ms > next_ms:
                        # Just before the last one, unless that was missed, too.
                        course.cursor_ms = last_ms if is_left_out else last_ms - 1
                        continue
            if not await self._arm(course, next_ms):
                again_ms = now_ms + FAILED_MS
                break
        heapq.heappush(self._due, (max(again_ms, now_ms), schedule.name))

    async def _arm(self, course: _Course, at_ms: int) -> bool:
        """Put the message of an occurrence into the log unless it is there; return whether it is."""
        schedule = course.schedule
        key = unique_key(schedule, at_ms)
        try:
            if course.is_uncertain and await asyncio.to_thread(self._is_stored, schedule.topic, key):
                self._armed(course, at_ms)
                return True
            await self._own.send(_message(schedule, at_ms, key, self._clock.wall_ms()))
        except RocketMQError as error:
            # It may be stored although its reply is missing.
            course.is_uncertain = True
            if course.fault != str(error):
                log.warning(
                    "schedule %s: cannot send to %s, retrying: %s", schedule.name, schedule.topic, error
                )
            course.fault = str(error)
            return False
        course.is_uncertain = False
        course.fault = ""
        self._armed(course, at_ms)
        return True

    def _armed(self, course: _Course, at_ms: int) -> None:
        course.cursor_ms = at_ms
        if self._courses.get(course.schedule.name) is course:
            self._progress.armed_ms[progress_key(course.schedule)] = at_ms

    def _is_stored(self, topic: str, key: str) -> bool:
        """Return whether the log has a message with this key, waiting or delivered."""
        for place in (TIMER_TOPIC, topic):
            records, _, _ = self._store.query(place, key, COPIES_MAX, 0, (1 << 63) - 1)
            # The index compares hashes.
            if any(key.encode() in record for record in records):
                return True
        return False


def progress_key(schedule: Schedule) -> str:
    """Return the name of a schedule's progress, which differs after each change."""
    return f"{schedule.generation}@{schedule.name}"


def unique_key(schedule: Schedule, at_ms: int) -> str:
    """Return the message id of an occurrence."""
    source = f"{schedule.name}\n{schedule.generation}\n{at_ms}"
    return hashlib.blake2b(source.encode(), digest_size=16).hexdigest().upper()


def _message(schedule: Schedule, at_ms: int, key: str, now_ms: int) -> SendMessage:
    own = {"UNIQ_KEY": key, SCHEDULE: schedule.name, SCHEDULED_MS: str(at_ms), "WAIT": "true"}
    if schedule.tag:
        own["TAGS"] = schedule.tag
    if schedule.keys:
        own["KEYS"] = schedule.keys
    if at_ms > now_ms:
        own["TIMER_DELIVER_MS"] = str(at_ms)
    return SendMessage(
        producer_group="rmqpy-schedules",
        topic=schedule.topic,
        # Schedules name existing topics.
        default_topic="",
        default_topic_queue_nums=0,
        # The broker chooses.
        queue_id=-1,
        born_timestamp=now_ms,
        properties=properties.encode({**schedule.properties, **own}),
        body=base64.b64decode(schedule.body),
    )
