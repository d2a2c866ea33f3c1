"""Schedules of a cluster: messages that brokers send at times of a calendar. rmqpy's brokers only."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Literal, NamedTuple

from rmqpy.admin.connection import AdminConnection, Part
from rmqpy.admin.topics import Topics
from rmqpy.config.arguments import check_range, check_types
from rmqpy.errors import ConfigError, Unsupported
from rmqpy.message import Body, Message
from rmqpy.protocol.requests.schedules import (
    CATCH_UP,
    DeleteSchedule,
    GetSchedules,
    PutSchedule,
    ScheduleState,
)
from rmqpy.protocol.requests.schedules import Schedule as WireSchedule

CatchUp = Literal["latest", "all", "none"]


class Schedule(NamedTuple):
    """A schedule at a broker."""

    name: str
    broker: str
    topic: str
    #: The cron expression, or empty, and the interval in seconds, or 0.
    cron: str
    every: float
    zone: str
    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    catch_up: str
    paused: bool
    #: The next occurrence, and the last sent one, in ms since the epoch; 0 without one.
    next_ms: int
    last_ms: int
    #: Why it does not send, or empty.
    fault: str


class Schedules(Part):
    """The schedules of a cluster. Names are unique in a cluster."""

    def __init__(self, cluster: AdminConnection) -> None:
        super().__init__(cluster)
        self._topics = Topics(cluster)

    async def all(self) -> list[Schedule]:
        """List all schedules, by name. Brokers of Apache have none."""
        found = [_shown(broker, state) for broker, _, state in await self._states(GetSchedules())]
        return sorted(found, key=lambda schedule: schedule.name)

    async def get(self, name: str) -> Schedule:
        """Return a schedule. Raises `ConfigError` for an unknown one."""
        broker, _, state = await self._find(GetSchedules(name=name), name)
        return _shown(broker, state)

    async def create(
        self,
        name: str,
        topic: str,
        body: Body,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        zone: str = "UTC",
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        catch_up: CatchUp = "latest",
        paused: bool = False,
        broker: str | None = None,
    ) -> Schedule:
        """Create a schedule; return it with its next occurrence.

        Give either `cron`, five fields in the time zone `zone`, or `every`, an interval of at least a second. The topic
        must exist. `catch_up`: after a time without a broker, send the `latest` missed occurrence, `all` of them, or
        `none`. `broker`: the broker that sends; by default the first with the topic. Raises `ConfigError` if
        the name is taken, and `BrokerError` for invalid values.
        """
        check_types(name=(name, str), topic=(topic, str), cron=(cron, str | None), zone=(zone, str))
        if catch_up not in CATCH_UP:
            raise ConfigError(f"catch_up must be one of {', '.join(CATCH_UP)}, not {catch_up!r}")
        seconds = every.total_seconds() if isinstance(every, timedelta) else every or 0.0
        if every is not None:
            check_range("every", seconds, "every")
        # It checks the values.
        message = Message(topic, body, tag=tag, keys=keys, properties=properties)
        if await self._states(GetSchedules(name=name, is_brief=True)):
            raise ConfigError(f"schedule {name!r} exists", hint="delete it before, or choose another name")
        masters = self._cluster.masters_in(await self._topics.route(topic), is_change=True)
        if broker is None:
            broker = next(iter(masters))
        if broker not in masters:
            raise ConfigError(
                f"topic {topic!r} is not at broker {broker!r}", hint=f"it is at {', '.join(masters)}"
            )
        schedule = WireSchedule(
            name=name,
            topic=topic,
            body=base64.b64encode(message.body).decode(),
            cron=cron or "",
            every_ms=round(seconds * 1_000),
            zone=zone,
            tag=tag or "",
            keys=" ".join(message.keys),
            properties=dict(properties or {}),
            catch_up=catch_up,
            is_paused=paused,
        )
        await self._cluster.ask(masters[broker], PutSchedule(body=schedule))
        return await self.get(name)

    async def pause(self, name: str) -> None:
        """Send nothing until `resume`, and recall the pending message. Raises `ConfigError` for an unknown schedule."""
        await self._set_paused(name, True)

    async def resume(self, name: str) -> None:
        """Send again from the next occurrence on. Occurrences of the pause are not sent."""
        await self._set_paused(name, False)

    async def delete(self, name: str) -> None:
        """Delete a schedule, and recall its pending message. Raises `ConfigError` for an unknown schedule."""
        _, address, _ = await self._find(GetSchedules(name=name, is_brief=True), name)
        await self._cluster.ask(address, DeleteSchedule(name=name))

    async def _set_paused(self, name: str, is_paused: bool) -> None:
        _, address, state = await self._find(GetSchedules(name=name, is_brief=True), name)
        if state.schedule.is_paused != is_paused:
            changed = dataclasses.replace(state.schedule, is_paused=is_paused)
            await self._cluster.ask(address, PutSchedule(is_change=True, body=changed))

    async def _find(self, ask: GetSchedules, name: str) -> tuple[str, str, ScheduleState]:
        for found in await self._states(ask):
            return found
        raise ConfigError(f"the cluster has no schedule {name!r}", hint="rmqpy schedule list")

    async def _states(self, ask: GetSchedules) -> list[tuple[str, str, ScheduleState]]:
        found = []
        masters = await self._cluster.every_master()
        await self._cluster.notice_silent(masters)
        for broker, address in masters:
            with suppress(Unsupported), self._cluster.may_miss(broker):
                answer = await self._cluster.ask(address, ask)
                found += [(broker, address, state) for state in answer.states]
        return found


def _shown(broker: str, state: ScheduleState) -> Schedule:
    schedule = state.schedule
    return Schedule(
        name=schedule.name,
        broker=broker,
        topic=schedule.topic,
        cron=schedule.cron,
        every=schedule.every_ms / 1_000,
        zone=schedule.zone,
        body=base64.b64decode(schedule.body),
        tag=schedule.tag or None,
        keys=tuple(schedule.keys.split()),
        properties=schedule.properties,
        catch_up=schedule.catch_up,
        paused=schedule.is_paused,
        next_ms=state.next_ms,
        last_ms=state.last_ms,
        fault=state.fault,
    )
