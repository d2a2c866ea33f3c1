"""Administration of topics. On the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rmqpy._native import Offsets, Store
from rmqpy.control.settings import LiveConfig
from rmqpy.control.tables import attributes
from rmqpy.control.tables.pagination import page_of, wait_for_change
from rmqpy.control.tables.unserved import unserved_of_topic
from rmqpy.control.topic_deletion import TopicDeletion
from rmqpy.control.topics.table import Topics, fault
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.routes import TopicList
from rmqpy.protocol.requests.topics import (
    AllTopicConfig,
    CleanUnusedTopic,
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    UpdateAndCreateTopic,
    UpdateAndCreateTopicList,
)
from rmqpy.protocol.topics import TopicConfig, TopicTable
from rmqpy.remoting.server import ConnectionClosed, Refused, RequestContext, handles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class TopicHandlers:
    """Create, change, delete and list topics."""

    _config: LiveConfig
    _topics: Topics
    _store: Store
    _offsets: Offsets
    _deletion: TopicDeletion

    @handles(UpdateAndCreateTopic)
    async def create(self, ask: UpdateAndCreateTopic) -> None:
        wanted = TopicConfig(
            topic_name=ask.topic,
            read_queue_nums=ask.read_queue_nums,
            write_queue_nums=ask.write_queue_nums,
            perm=ask.perm,
            topic_filter_type=ask.topic_filter_type,
            topic_sys_flag=ask.topic_sys_flag,
            order=ask.order,
        )
        await self._topics.put(self._checked(wanted, attributes.parse(ask.attributes or "")))

    @handles(UpdateAndCreateTopicList)
    async def create_all(self, ask: UpdateAndCreateTopicList) -> None:
        # All or none are applied; Apache's broker stops at the first unchanged one.
        checked = [self._checked(topic, topic.attributes) for topic in ask.body.topic_config_list]
        await self._topics.put(*checked)

    def _checked(self, wanted: TopicConfig, changes: Mapping[str, str]) -> TopicConfig:
        """Return the configuration to store. Raises `Refused`."""
        name = wanted.topic_name
        if reason := names.topic_fault(name) or fault(wanted):
            raise Refused(ResponseCode.INVALID_PARAMETER, reason)
        if self._config.now.guards_system_topics and self._topics.is_system(name):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")
        known = self._topics.next_table.get(name)
        merged = attributes.apply(
            attributes.TOPIC_ATTRIBUTES, None if known is None else known.attributes, changes
        )
        if merged.get(attributes.MESSAGE_TYPE) == "MIXED" and not self._config.now.allows_mixed_topics:
            raise Refused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        checked = dataclasses.replace(wanted, attributes=merged)
        for reason in unserved_of_topic(checked):
            raise Refused(ResponseCode.SYSTEM_ERROR, reason)
        return checked

    @handles(DeleteTopicInBroker)
    async def delete(self, ask: DeleteTopicInBroker) -> None:
        name = ask.topic
        if not name.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        is_guarded = self._config.now.guards_system_topics or name in names.BROKER_TOPICS
        if is_guarded and self._topics.is_system(name):
            raise Refused(ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic.")
        gone = [name]
        if self._config.now.clears_retry_topics and not names.is_derived(name):
            for group in self._offsets.groups_of(name):
                gone += [f"{names.retry_topic(group)}{separator}{name}" for separator in "_+"]
        async with self._topics.leaving(gone):
            # The configuration first, so that clients cannot send to a topic whose queues are being deleted.
            await self._deletion.delete([topic.topic_name for topic in await self._topics.remove(*gone)])

    @handles(CleanUnusedTopic)
    async def clean(self, ask: CleanUnusedTopic) -> None:
        # Queues left by a crash during a deletion, or by a manual change of topics.json.
        held = [name for name, _ in await asyncio.to_thread(self._store.queues)]
        unused = [
            name for name in held if name not in self._topics.table and not self._topics.is_system(name)
        ]
        if unused:
            log.info("deleting queues of unconfigured topics: %s", ", ".join(unused))
            async with self._topics.leaving(unused):
                await self._deletion.delete([name for name in unused if name not in self._topics.table])

    @handles(GetTopicConfig)
    def config(self, ask: GetTopicConfig) -> TopicConfig:
        return self._topics.existing(ask.topic)

    @handles(GetAllTopicConfig)
    async def all(self, ask: GetAllTopicConfig, context: RequestContext) -> AllTopicConfig:
        await wait_for_change(self._topics, context.connection, ask.data_version, ask.wait_millis)
        table = self._topics.table
        if ask.names is not None:
            page = {name: table[name] for name in ask.names.split("\n") if name in table}
        else:
            page = page_of(
                table,
                ask.topic_seq,
                ask.max_topic_num,
                ask.data_version,
                self._topics.version,
                self._config.now,
            )
        return AllTopicConfig(
            total_topic_num=len(table),
            can_wait=True,
            body=TopicTable(
                data_version=self._topics.version,
                topic_config_table=page,
                mapping_data_version=self._topics.version,
                topic_queue_mapping_detail_map={},
                topic_queue_mapping_info_map={},
            ),
        )

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        self._topics.readers.forget(event.connection)

    @handles(GetSystemTopicListFromBroker)
    def system(self, ask: GetSystemTopicListFromBroker) -> TopicList:
        return TopicList(topic_list=sorted(self._topics.system))
