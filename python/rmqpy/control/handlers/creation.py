"""Creation of topics and groups on first use. On the event loop.

The data plane parks the first sends to an unknown topic, and pulls of an unknown group, and requests each name once. It
resumes them at `release`, or refuses them after 3 s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rmqpy._native import Server
from rmqpy.control.groups.table import Groups
from rmqpy.control.settings import LiveConfig
from rmqpy.control.topics.table import Topics
from rmqpy.errors import StoreError
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.topics import TopicFlag
from rmqpy.remoting.server import GroupWanted, Refused, TopicWanted, handles

log = logging.getLogger(__name__)

#: The minimum time between log lines about an unknown group, and the number of remembered groups.
NOTE_SECONDS: Final = 60.0
_NOTED_MAX: Final = 1_024
#: The queues of a topic whose first send does not name a number.
_QUEUES_DEFAULT = 4


@dataclass(frozen=True, slots=True, eq=False)
class CreationHandlers:
    """Creates a topic or group durably before its waiting requests continue."""

    _config: LiveConfig
    _topics: Topics
    _groups: Groups
    _server: Server
    #: The time of the last log line by unknown group.
    _noted: dict[str, float] = field(default_factory=dict)

    @handles(TopicWanted)
    async def topic_wanted(self, event: TopicWanted) -> None:
        try:
            code, remark = await self._make_topic(event)
        except Refused as refused:
            code, remark = refused.code, refused.remark
        except StoreError as error:
            code, remark = ResponseCode.SYSTEM_ERROR, str(error)
        self._server.release("create_topic", event.name, code, remark)

    @handles(GroupWanted)
    async def group_wanted(self, event: GroupWanted) -> None:
        code, remark = ResponseCode.SUCCESS, None
        try:
            if await self._groups.ensure(event.name, self._config.now) is None:
                code, remark = _no_group(event.name)
                self._note_unknown(event.name)
        except Refused as refused:
            code, remark = refused.code, refused.remark
        except StoreError as error:
            code, remark = ResponseCode.SYSTEM_ERROR, str(error)
        self._server.release("create_group", event.name, code, remark)

    def _note_unknown(self, group: str) -> None:
        """Log once a minute that an unknown group's members get no messages; clients retry without an error."""
        now = time.monotonic()
        for name in [name for name, noted in self._noted.items() if now - noted >= NOTE_SECONDS]:
            del self._noted[name]
        if group in self._noted or len(self._noted) >= _NOTED_MAX:
            return
        self._noted[group] = now
        log.warning(
            "group %s does not exist, and its members receive no messages: create it at the master "
            "(rmqpy group create %s), or set autoCreateSubscriptionGroup=true",
            group,
            group,
        )

    async def _make_topic(self, event: TopicWanted) -> tuple[ResponseCode, str | None]:
        if names.is_derived(event.name):
            name = _popping_group(event) or names.group_of(event.name)
            group = await self._groups.ensure(name, self._config.now)
            if group is None:
                return _no_group(name)
            if name != names.group_of(event.name):
                kept = self._config.now.pop_keeps_retry_queues
                queues = self._topics.queue_count(event.ext.get("topic", "")) if kept else 1
                await self._topics.ensure_derived(event.name, max(1, queues), is_grown=kept)
                return ResponseCode.SUCCESS, None
            is_retry = event.name.startswith(names.RETRY_PREFIX)
            await self._topics.ensure_derived(event.name, max(1, group.retry_queue_nums) if is_retry else 1)
            return ResponseCode.SUCCESS, None
        topic = await self._topics.create_for_send(
            event.name,
            _field(event.ext, "defaultTopic", "c"),
            _number(_field(event.ext, "defaultTopicQueueNums", "d")),
            TopicFlag.UNIT if _field(event.ext, "unitMode", "k") == "true" else 0,
            auto_create=self._config.now.auto_create_topics,
        )
        if topic is None:
            remark = f"topic[{event.name}] not exist, apply first please!"
            return ResponseCode.TOPIC_NOT_EXIST, f"{remark} Create it with: rmqpy topic create {event.name}"
        return ResponseCode.SUCCESS, None


def _popping_group(event: TopicWanted) -> str | None:
    """Return the group whose retry topic is wanted by a pop; `None` for any other topic."""
    group, topic = event.ext.get("consumerGroup", ""), event.ext.get("topic", "")
    kinds = (names.pop_retry_topic(group, topic, is_v2=is_v2) for is_v2 in (False, True))
    return group if topic and event.name in kinds else None


def _no_group(name: str) -> tuple[ResponseCode, str]:
    return ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist"


def _field(ext: Mapping[str, str], long: str, short: str) -> str:
    """Return a field of a send, which has long names in code 10 and letters in 310 and 320."""
    return ext.get(long) or ext.get(short) or ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else _QUEUES_DEFAULT
