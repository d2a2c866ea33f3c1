"""Administration of topics. On the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmqpy._native import Offsets, Store
from rmqpy.control.clients.lite_topics import LiteTopics
from rmqpy.control.plugins.policies import Policies
from rmqpy.control.settings import LiveConfig
from rmqpy.control.tables import attributes
from rmqpy.control.tables.pagination import page_of, wait_for_change
from rmqpy.control.tables.unserved import unserved_of_topic
from rmqpy.control.topic_deletion import TopicDeletion
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.control.topics.table import Topics, fault
from rmqpy.plugins import TopicRequest
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.routes import TopicList
from rmqpy.protocol.requests.topics import (
    AllTopicConfig,
    CleanUnusedTopic,
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    MappedTopicConfig,
    UpdateAndCreateStaticTopic,
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
    _static: StaticTopics
    _store: Store
    _offsets: Offsets
    _deletion: TopicDeletion
    _policies: Policies
    #: Has parked pulls look again.
    _wake_pulls: Callable[[], None]
    _lite_topics: LiteTopics

    @handles(UpdateAndCreateTopic)
    async def create(self, ask: UpdateAndCreateTopic, context: RequestContext) -> None:
        checked = self._checked(ask.config(), attributes.parse(ask.attributes or ""))
        await self._admit(checked, context)
        await self._topics.put(checked)
        await self._topics.confirm()

    @handles(UpdateAndCreateStaticTopic)
    async def create_static(self, ask: UpdateAndCreateStaticTopic, context: RequestContext) -> None:
        checked = self._checked(ask.config(), attributes.parse(ask.attributes or ""))
        if self._topics.is_system(ask.topic):
            remark = f"The topic[{ask.topic}] is conflict with system topic."
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        await self._admit(checked, context)
        mapping = None
        if ask.body is not None:
            named = dataclasses.replace(ask.body, topic=ask.body.topic or ask.topic)
            if named.topic != ask.topic:
                raise Refused(ResponseCode.INVALID_PARAMETER, f"the mapping is of topic {named.topic[:255]}")
            mapping = self._static.checked(named, is_forced=bool(ask.force))
            queues = max(checked.read_queue_nums, checked.write_queue_nums)
            if any(queue >= queues for queue in mapping.curr_id_map.values()):
                remark = f"the mapping has a queue of this broker that is not below {queues}"
                raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        await self._topics.put(checked)
        if mapping is not None:
            await self._static.put(mapping)
            # A slave copies both tables with the topics' version.
            await self._topics.reached()
            # Consumers of a queue that moved must learn its new leader.
            self._wake_pulls()
        await self._topics.confirm()

    @handles(UpdateAndCreateTopicList)
    async def create_all(self, ask: UpdateAndCreateTopicList, context: RequestContext) -> None:
        # All or none are applied; Apache's broker stops at the first unchanged one.
        checked = [self._checked(topic, topic.attributes) for topic in ask.body.topic_config_list]
        for topic in checked:
            await self._admit(topic, context)
        await self._topics.put(*checked)
        await self._topics.confirm()

    async def _admit(self, topic: TopicConfig, context: RequestContext) -> None:
        """Ask the policies about a topic. Raises `Refused`."""
        await self._policies.topic(
            TopicRequest(
                topic.topic_name,
                topic.read_queue_nums,
                topic.write_queue_nums,
                topic.attributes or {},
                is_new=topic.topic_name not in self._topics.next_table,
                origin="administrator",
                user=context.user,
                address=context.address,
            )
        )

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
        if attributes.is_compacted(merged) and not self._config.now.store.has_compaction:
            remark = "cleanup.policy=COMPACTION needs enableCompaction=true in the broker's configuration"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        store = self._config.now.store
        if attributes.is_lite_parent(merged) and not (store.has_lights and store.dispatches_to_lights):
            remark = "message.type=LITE needs enableLmq=true and enableMultiDispatch=true in the broker's configuration"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
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
            removed = [topic.topic_name for topic in await self._topics.remove(*gone)]
            await self._static.remove(*gone)
            if self._topics.has_light(name) and self._store.max_offset(name, 0) > 0:
                removed.append(name)
            await self._deletion.delete(removed)
            await self._lite_topics.delete_of(name)
        await self._topics.confirm()

    @handles(CleanUnusedTopic)
    async def clean(self, ask: CleanUnusedTopic) -> None:
        # Queues left by a crash during a deletion, or by a manual change of topics.json.
        held = [name for name, _ in await asyncio.to_thread(self._store.queues)]
        unused = [
            name
            for name in held
            if name not in self._topics.table and not (self._topics.is_system(name) or names.is_light(name))
        ]
        if unused:
            log.info("deleting queues of unconfigured topics: %s", ", ".join(unused))
            async with self._topics.leaving(unused):
                await self._deletion.delete([name for name in unused if name not in self._topics.table])

    @handles(GetTopicConfig)
    def config(self, ask: GetTopicConfig) -> MappedTopicConfig:
        topic = self._topics.existing(ask.topic)
        mapping = self._static.table.get(ask.topic) if ask.lo else None
        known = {field.name: getattr(topic, field.name) for field in dataclasses.fields(topic)}
        return MappedTopicConfig(**known, mapping_detail=mapping)

    @handles(GetAllTopicConfig)
    async def all(self, ask: GetAllTopicConfig, context: RequestContext) -> AllTopicConfig:
        await wait_for_change(
            self._topics, context.connection, ask.slave_id, ask.data_version, ask.wait_millis
        )
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
        # All of them are in the first page: there are few.
        is_first = not ask.topic_seq and ask.names is None
        mappings = {name: json_tree(mapping) for name, mapping in self._static.table.items() if is_first}
        return AllTopicConfig(
            total_topic_num=len(table),
            can_wait=True,
            body=TopicTable(
                data_version=self._topics.version,
                topic_config_table=page,
                # Without a mapping nothing is in its file, and masters and slaves report the same.
                mapping_data_version=self._static.version if self._static.table else self._topics.version,
                topic_queue_mapping_detail_map=mappings,
                topic_queue_mapping_info_map={},
            ),
        )

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        self._topics.forget(event.connection)

    @handles(GetSystemTopicListFromBroker)
    def system(self, ask: GetSystemTopicListFromBroker) -> TopicList:
        return TopicList(topic_list=sorted(self._topics.system))
