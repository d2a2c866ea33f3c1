"""Replies to requests between clients. On the event loop; a worker appends to the store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from rmqpy._native import Server, store_reply
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.clients.replies import Replies
from rmqpy.control.settings import LiveConfig
from rmqpy.control.topics.table import Topics
from rmqpy.errors import BrokerError, StoreError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.properties import decode, encode
from rmqpy.protocol.requests.messages import StoredMessage
from rmqpy.protocol.requests.replies import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    PushReplyMessage,
    SendReplyMessage,
    SendReplyMessageV2,
)
from rmqpy.protocol.topics import Permission, TopicConfig
from rmqpy.remoting.server import Refused, RequestContext, handles

#: The suffix of a cluster's reply topic.
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
_Reply = SendReplyMessage | SendReplyMessageV2


@dataclass(frozen=True, slots=True, eq=False)
class ReplyHandlers:
    """Forwards a reply to its requester, then stores it, and only then replies to the sender. An undelivered reply is
    also stored, but the sender gets the reason."""

    _config: LiveConfig
    _topics: Topics
    _replies: Replies
    _server: Server
    #: The address of this broker, `ip:port`.
    _address: str
    _clock: Clock

    @handles(SendReplyMessage)
    async def reply(self, ask: SendReplyMessage, context: RequestContext) -> StoredMessage:
        return await self._send_on(ask, context)

    @handles(SendReplyMessageV2)
    async def reply_short(self, ask: SendReplyMessageV2, context: RequestContext) -> StoredMessage:
        return await self._send_on(ask, context)

    async def _send_on(self, ask: _Reply, context: RequestContext) -> StoredMessage:
        config = self._config.now
        if context.is_guarded and not _is_of_replies(ask.topic, config.cluster):
            # A permission to send to another topic must not allow replies to others' requests.
            remark = f"replies are sent to {config.cluster}{REPLY_SUFFIX}, not to {ask.topic}"
            raise Refused(ResponseCode.NO_PERMISSION, remark)
        _check(ask, await self._topic(ask, config), config)
        properties = decode(ask.properties)
        undelivered = await self._replies.deliver(
            properties.get(REPLY_TO_CLIENT), self._push(ask, properties, context, config)
        )
        message_id, queue_offset = "0", 0
        if config.stores_replies:
            try:
                message_id, queue_offset = await asyncio.to_thread(self._store, ask, context)
            except (BrokerError, StoreError) as error:
                self._replies.not_stored(str(error))
        stored = StoredMessage(
            msg_id=message_id,
            queue_id=ask.queue_id,
            queue_offset=queue_offset,
            region=config.region,
            trace_on=config.trace_on,
        )
        if undelivered is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, undelivered, stored)
        return stored

    async def _topic(self, ask: _Reply, config: BrokerConfig) -> TopicConfig:
        """Return the topic of a reply. Clients with a namespace use their own topic, created like that of a send."""
        topic = self._topics.table.get(ask.topic) or await self._topics.create_for_send(
            ask.topic,
            ask.default_topic,
            ask.default_topic_queue_nums,
            0,
            auto_create=config.auto_create_topics,
        )
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{ask.topic}] not exist, apply first please!")
        return topic

    def _push(
        self, ask: _Reply, properties: dict[str, str], context: RequestContext, config: BrokerConfig
    ) -> PushReplyMessage:
        now_ms = self._clock.wall_ms()
        added = {
            PUSH_REPLY_TIME: str(now_ms),
            "MSG_REGION": config.region,
            "TRACE_ON": "true" if config.trace_on else "false",
        }
        return PushReplyMessage(
            producer_group=ask.producer_group,
            topic=ask.topic,
            default_topic=ask.default_topic,
            default_topic_queue_nums=ask.default_topic_queue_nums,
            queue_id=ask.queue_id,
            sys_flag=ask.sys_flag,
            born_timestamp=ask.born_timestamp,
            flag=ask.flag,
            properties=encode(properties | added),
            reconsume_times=ask.reconsume_times,
            unit_mode=ask.unit_mode,
            born_host=context.address,
            store_host=self._address,
            store_timestamp=now_ms,
            body=ask.body,
        )

    def _store(self, ask: _Reply, context: RequestContext) -> tuple[str, int]:
        return store_reply(
            self._server,
            topic=ask.topic,
            queue_id=ask.queue_id,
            sys_flag=ask.sys_flag,
            born_ms=ask.born_timestamp,
            born_host=context.address,
            flag=ask.flag,
            properties=ask.properties,
            reconsume_times=ask.reconsume_times,
            body=ask.body,
        )


def _is_of_replies(topic: str, cluster: str) -> bool:
    """Return whether this is the cluster's reply topic, in a namespace or not."""
    return topic.rpartition("%")[2] == cluster + REPLY_SUFFIX


def _check(ask: _Reply, topic: TopicConfig, config: BrokerConfig) -> None:
    """Check a reply like a send, before it is forwarded. An empty body is accepted, as at Apache's broker, because Go's
    client sends some; it is not stored. Raises `Refused`."""
    if not topic.perm & Permission.WRITE:
        raise Refused(ResponseCode.NO_PERMISSION, f"the topic[{ask.topic}] sending message is forbidden")
    queues = max(topic.read_queue_nums, topic.write_queue_nums)
    if ask.queue_id >= queues:
        remark = f"request queueId[{ask.queue_id}] is illegal, topic [{ask.topic}] has {queues} queues"
        raise Refused(ResponseCode.INVALID_PARAMETER, remark)
    if len(ask.body) > config.store.message_bytes_max:
        remark = (
            f"the message is illegal: its body has {len(ask.body)} bytes, of {config.store.message_bytes_max}"
        )
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
