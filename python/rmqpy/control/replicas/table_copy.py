"""Table copies: the master's topics and groups.

A table is read page by page and replaced as a whole. Our master answers when its table has changed; Apache's is polled
every few seconds. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from rmqpy.control.groups.table import Groups
from rmqpy.control.groups.table import fault as group_fault
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.control.topics.table import Topics
from rmqpy.control.topics.table import fault as topic_fault
from rmqpy.errors import DecodeError
from rmqpy.protocol import fastjson
from rmqpy.protocol.declare import json_tree, read_tree
from rmqpy.protocol.requests.groups import GetAllSubscriptionGroupConfig, GroupTable, SubscriptionGroup
from rmqpy.protocol.requests.topics import GetAllTopicConfig
from rmqpy.protocol.static_topics import TopicMapping
from rmqpy.protocol.topics import DataVersion, TopicConfig
from rmqpy.remoting.client import Peer

T = TypeVar("T")

#: The longest time that a master holds a query for changes, and the time its reply may take beyond that.
WAIT_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 10.0
#: The interval at an Apache master, which never reports a change; its own slaves poll every minute.
APACHE_SECONDS: Final = 10.0
#: The fraction of time for copying a constantly changing table of several pages, and the longest pause for that.
BUSY_PART: Final = 0.2
PAUSE_SECONDS_MAX: Final = 1.0
PAGE_ENTRIES: Final = 2_000
#: The limit, like that of a registration.
ENTRIES_MAX: Final = 100_000
#: The most changes of a table while it is being read.
RESTARTS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some entries of one version of a table."""

    version: DataVersion
    entries: Mapping[str, T]
    #: The number of entries of the whole table; `None` if the page is complete.
    total: int | None
    #: True if the master can hold a query until the version changes.
    can_wait: bool
    #: For groups: forbidden bits by group and topic.
    forbidden: Mapping[str, dict[str, int]] = field(default_factory=dict)
    #: For topics: the mappings of static ones, and their version.
    mappings: Mapping[str, TopicMapping] = field(default_factory=dict)
    mapping_version: DataVersion = field(default_factory=DataVersion)


class TableCopy(ABC, Generic[T]):
    def __init__(self, slave_id: int | None) -> None:
        """`slave_id` is this broker's id from a controller."""
        self._slave_id = slave_id
        self._can_wait = False
        #: The earliest time to read the pages again.
        self._not_before = 0.0

    @property
    @abstractmethod
    def what(self) -> str:
        """The name in log lines."""

    async def copy(self, master: Peer) -> float:
        """Wait for a change if the master supports it, and copy it. The wait shows the master what this broker has."""
        if self._can_wait:
            known = await self._page(master, 0, 0, self._version, WAIT_SECONDS)
            self._can_wait = known.can_wait
            if known.version == self._version:
                return 0.0 if known.can_wait else APACHE_SECONDS
            await asyncio.sleep(self._not_before - time.monotonic())
        # After a failure the pages are read, even if the version is the newest.
        self._can_wait = False
        began = time.monotonic()
        pages = await self._pages(master)
        if pages[0].version != self._version or self._lacks(pages):
            await self._take(pages)
        self._can_wait = pages[0].can_wait
        if len(pages) > 1:
            now = time.monotonic()
            self._not_before = now + min((now - began) / BUSY_PART, PAUSE_SECONDS_MAX)
        return 0.0 if self._can_wait else APACHE_SECONDS

    async def _pages(self, master: Peer) -> Sequence[Page[T]]:
        """Return all pages of one version."""
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

    def _lacks(self, pages: Sequence[Page[T]]) -> bool:
        """Return whether something has changed that has a version that is separate."""
        return False

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
    what = "topics"

    def __init__(
        self,
        topics: Topics,
        static: StaticTopics,
        delete: Callable[[Sequence[str]], Awaitable[None]],
        *,
        slave_id: int | None = None,
    ) -> None:
        """`delete` removes the queues and offsets of deleted topics."""
        super().__init__(slave_id)
        self._topics = topics
        self._static = static
        self._delete = delete

    @property
    def _version(self) -> DataVersion:
        return self._topics.version

    async def _page(
        self, master: Peer, first: int, count: int, version: DataVersion | None, wait: float | None
    ) -> Page[TopicConfig]:
        answer = await master.call(
            GetAllTopicConfig(
                topic_seq=first,
                max_topic_num=count,
                data_version=_text(version),
                wait_millis=_millis(wait),
                slave_id=self._slave_id,
            ),
            timeout=ANSWER_SECONDS + (wait or 0.0),
        )
        table = {topic.topic_name: topic for topic in answer.body.topic_config_table.values()}
        for name, topic in table.items():
            if reason := topic_fault(topic):
                raise DecodeError(f"topic {name[:80]}: {reason}")
        details = answer.body.topic_queue_mapping_detail_map or {}
        return Page(
            answer.body.data_version,
            table,
            answer.total_topic_num,
            bool(answer.can_wait),
            mappings={name: read_tree(TopicMapping, detail) for name, detail in details.items()},
            mapping_version=answer.body.mapping_data_version or DataVersion(),
        )

    def _lacks(self, pages: Sequence[Page[TopicConfig]]) -> bool:
        return _mappings(pages) != self._static.next_table

    async def _take(self, pages: Sequence[Page[TopicConfig]]) -> None:
        table = {name: topic for page in pages for name, topic in page.entries.items()}
        # The configuration first, so that clients cannot use a topic whose queues are being deleted.
        removed = await self._topics.copy(table, pages[0].version)
        await self._static.copy_all(_mappings(pages), pages[0].mapping_version)
        await self._delete([topic.topic_name for topic in removed])


class GroupCopy(TableCopy[SubscriptionGroup]):
    """The copy of the groups and their forbidden topics."""

    what = "groups"

    def __init__(self, groups: Groups, *, slave_id: int | None = None) -> None:
        super().__init__(slave_id)
        self._groups = groups

    @property
    def _version(self) -> DataVersion:
        return self._groups.version

    async def _page(
        self, master: Peer, first: int, count: int, version: DataVersion | None, wait: float | None
    ) -> Page[SubscriptionGroup]:
        answer = await master.call(
            GetAllSubscriptionGroupConfig(
                group_seq=first,
                max_group_num=count,
                data_version=_text(version),
                wait_millis=_millis(wait),
                slave_id=self._slave_id,
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


def _mappings(pages: Sequence[Page[TopicConfig]]) -> dict[str, TopicMapping]:
    return {name: mapping for page in pages for name, mapping in page.mappings.items()}


def _text(version: DataVersion | None) -> str:
    """Return the text that Apache's broker compares."""
    return fastjson.dumps(dict(sorted(json_tree(version).items()))) if version is not None else ""


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000)
