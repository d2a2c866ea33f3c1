"""Copies of the master's tables of topics and of groups.

A table is read page by page, and put in the place of the old one whole. A master of ours answers when its table has
changed; Apache's is asked every few seconds. Threads: the event loop's.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from rmqpy.control.groups.table import Groups
from rmqpy.control.groups.table import fault as group_fault
from rmqpy.control.topics.table import Topics
from rmqpy.control.topics.table import fault as topic_fault
from rmqpy.errors import DecodeError
from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.groups import GetAllSubscriptionGroupConfig, GroupTable, SubscriptionGroup
from rmqpy.protocol.requests.topics import GetAllTopicConfig
from rmqpy.protocol.topics import DataVersion, TopicConfig
from rmqpy.remoting.client import Peer

T = TypeVar("T")

#: How long a master may let the question for a change wait, and what the answer may take beyond that.
WAIT_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 10.0
#: Apache's slaves ask every minute, and every 10 s beside a controller; it never says that something changed.
APACHE_SECONDS: Final = 10.0
#: Of a table that changes without end, this part of the time is spent on copying it, unless that takes little.
BUSY_PART: Final = 0.2
SMALL_SECONDS: Final = 0.1
PAGE_ENTRIES: Final = 2_000
#: As of a registration.
ENTRIES_MAX: Final = 100_000
#: Times that a table may change while it is read.
RESTARTS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some entries of a table of that version."""

    version: DataVersion
    entries: Mapping[str, T]
    #: Of the whole table; None where this is all of it.
    total: int | None
    #: Whether the master can wait for another version.
    can_wait: bool
    #: Of groups: group to topic to bits.
    forbidden: Mapping[str, dict[str, int]] = field(default_factory=dict)


class TableCopy(ABC, Generic[T]):
    """The copy of one table."""

    def __init__(self) -> None:
        self._can_wait = False

    @property
    @abstractmethod
    def what(self) -> str:
        """As the log calls it."""

    async def copy(self, master: Peer) -> float:
        """Wait for a change, where the master can tell of one, and take it over."""
        if self._can_wait:
            known = await self._page(master, 0, 0, self._version, WAIT_SECONDS)
            self._can_wait = known.can_wait
            if known.version == self._version:
                return 0.0 if known.can_wait else APACHE_SECONDS
        began = time.monotonic()
        pages = await self._pages(master)
        if pages[0].version != self._version:
            await self._take(pages)
        self._can_wait = pages[0].can_wait
        took = time.monotonic() - began
        return (took / BUSY_PART if took > SMALL_SECONDS else 0.0) if self._can_wait else APACHE_SECONDS

    async def _pages(self, master: Peer) -> Sequence[Page[T]]:
        """All pages of one version."""
        pages: list[Page[T]] = []
        version: DataVersion | None = None
        count = restarts = 0
        while True:
            page = await self._page(master, count, PAGE_ENTRIES, version, None)
            if version is not None and page.version != version and count > 0:
                restarts += 1
                if restarts > RESTARTS_MAX:
                    raise DecodeError(f"{self.what} of {master.address} change faster than they can be read")
                pages, count, version = [], 0, None
                continue
            version = page.version
            pages.append(page)
            count += len(page.entries)
            if count > ENTRIES_MAX:
                raise DecodeError(f"{master.address} has more than {ENTRIES_MAX} {self.what}")
            if page.total is None or count >= page.total or not page.entries:
                return pages

    @property
    @abstractmethod
    def _version(self) -> DataVersion: ...

    @abstractmethod
    async def _page(
        self, master: Peer, first: int, count: int, version: DataVersion | None, wait: float | None
    ) -> Page[T]: ...

    @abstractmethod
    async def _take(self, pages: Sequence[Page[T]]) -> None: ...


class TopicCopy(TableCopy[TopicConfig]):
    """The copy of the topics."""

    what = "topics"

    def __init__(self, topics: Topics, delete: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        """`delete` drops what is left of topics that are gone."""
        super().__init__()
        self._topics = topics
        self._delete = delete

    @property
    def _version(self) -> DataVersion:
        return self._topics.version

    async def _page(
        self, master: Peer, first: int, count: int, version: DataVersion | None, wait: float | None
    ) -> Page[TopicConfig]:
        answer = await master.call(
            GetAllTopicConfig(
                topic_seq=first, max_topic_num=count, data_version=_text(version), wait_millis=_millis(wait)
            ),
            timeout=ANSWER_SECONDS + (wait or 0.0),
        )
        table = {topic.topic_name: topic for topic in answer.body.topic_config_table.values()}
        for name, topic in table.items():
            if reason := topic_fault(topic):
                raise DecodeError(f"topic {name[:80]}: {reason}")
        return Page(answer.body.data_version, table, answer.total_topic_num, bool(answer.can_wait))

    async def _take(self, pages: Sequence[Page[TopicConfig]]) -> None:
        table = {name: topic for page in pages for name, topic in page.entries.items()}
        # The configuration first: what is still in it is read while its queues disappear.
        removed = await self._topics.copy(table, pages[0].version)
        await self._delete([topic.topic_name for topic in removed])


class GroupCopy(TableCopy[SubscriptionGroup]):
    """The copy of the groups, and of what they may not read."""

    what = "groups"

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self._groups = groups

    @property
    def _version(self) -> DataVersion:
        return self._groups.version

    async def _page(
        self, master: Peer, first: int, count: int, version: DataVersion | None, wait: float | None
    ) -> Page[SubscriptionGroup]:
        answer = await master.call(
            GetAllSubscriptionGroupConfig(
                group_seq=first, max_group_num=count, data_version=_text(version), wait_millis=_millis(wait)
            ),
            timeout=ANSWER_SECONDS + (wait or 0.0),
        )
        body = answer.body
        table = {group.group_name: group for group in body.subscription_group_table.values()}
        for name, group in table.items():
            if reason := group_fault(group):
                raise DecodeError(f"group {name[:80]}: {reason}")
        can_wait = bool(answer.can_wait)
        return Page(body.data_version, table, answer.total_group_num, can_wait, body.forbidden_table)

    async def _take(self, pages: Sequence[Page[SubscriptionGroup]]) -> None:
        await self._groups.copy_all(
            GroupTable(
                data_version=pages[0].version,
                subscription_group_table={
                    name: group for page in pages for name, group in page.entries.items()
                },
                forbidden_table={group: topics for page in pages for group, topics in page.forbidden.items()},
            )
        )


def _text(version: DataVersion | None) -> str:
    """As Apache's broker writes it, which compares texts."""
    return fastjson.dumps(dict(sorted(json_tree(version).items()))) if version is not None else ""


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000)
