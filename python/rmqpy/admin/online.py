"""Online members of groups, queried through a broker: state, positions, consumption of one message."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.admin.messages import Messages
from rmqpy.errors import DecodeError, GroupNotFound, RocketMQError
from rmqpy.message import MessageQueue
from rmqpy.protocol import fastjson
from rmqpy.protocol.requests.introspection import (
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    InvokeBrokerToGetConsumerStatus,
)


class DirectResult(NamedTuple):
    """Result of a message that a member was asked to handle."""

    #: Java's name of it: `CR_SUCCESS`, `CR_LATER`, `CR_THROW_EXCEPTION`, …
    result: str
    #: The exception of the handler, or another remark.
    remark: str | None
    seconds: float


class Online(Part):
    """The online members of groups."""

    async def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> dict[str, Any]:
        """Return a member's report: properties, subscriptions, queues, rates, as its language names them. If it is
        offline or does not answer, raises the error of the last broker asked."""
        ask = GetConsumerRunningInfo(consumer_group=group, client_id=client_id, jstack_enable=with_stacks)
        return _object(await self._first(ask))

    async def positions(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, Mapping[MessageQueue, int]]:
        """Return the position of each member of a group, or of one, in the queues of a topic, by client id. Brokers
        know only their own members."""
        ask = InvokeBrokerToGetConsumerStatus(topic=topic, group=group, client_addr=client_id)
        found: dict[str, Mapping[MessageQueue, int]] = {}
        refused: RocketMQError | None = None
        for address in (await self._cluster.masters()).values():
            try:
                tables = (await self._cluster.ask(address, ask)).consumer_table
            except RocketMQError as error:
                refused = error
            else:
                for client, table in tables.items():
                    found[client] = {named.queue: offset for named, offset in table.items()}
        if refused is not None and not found:
            raise refused
        return found

    async def consume_directly(
        self, group: str, client_id: str, message_id: str, topic: str | None = None
    ) -> DirectResult:
        """Let one member handle one message now, regardless of its progress; nothing is committed.

        `message_id` is the broker's, or with `topic` the producer's. Raises `MessageNotFound`, and the error of the
        member's broker.
        """
        message = await Messages(self._cluster).get(message_id, topic)
        ask = ConsumeMessageDirectly(
            consumer_group=group, client_id=client_id, msg_id=message.offset_message_id,
            topic=message.topic, broker_name=message.queue.broker,
        )  # fmt: skip
        address = (await self._cluster.masters()).get(message.queue.broker)
        if address is None:
            raise GroupNotFound(f"broker {message.queue.broker}, which has the message, is unreachable")
        answer = _object(await self._cluster.ask(address, ask))
        return DirectResult(
            str(answer.get("consumeResult")),
            answer.get("remark"),
            int(answer.get("spentTimeMills") or 0) / 1000,
        )

    async def _first(self, ask: GetConsumerRunningInfo) -> bytes:
        refused: RocketMQError | None = None
        for address in (await self._cluster.masters()).values():
            try:
                return await self._cluster.ask(address, ask)
            except RocketMQError as error:
                refused = error
        assert refused is not None, "there is at least one master"
        raise refused


def _object(answer: bytes) -> dict[str, Any]:
    found = fastjson.loads(answer)
    if not isinstance(found, dict):
        raise DecodeError(f"unreadable response of a member: {answer[:64]!r}")
    return found
