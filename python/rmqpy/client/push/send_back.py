"""Send-back: returns failed messages to the broker, for a later delivery or as dead letters.

Owns the three paths of a failed message. Invariant: `send_back` returns after a broker has stored the message, so no
message is finished here before it is safe there. Two kinds of messages are lost, with an ERROR and a count: those of a
group without retry queues, whose broker would accept them and store nothing, and those that brokers refuse in every
form. For its caller's event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from itertools import count
from time import monotonic
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.consume_result import BY_POLICY, DELAYS_S
from rmqpy.client.push import failures
from rmqpy.message import ReceivedMessage
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.groups import GetSubscriptionGroupConfig
from rmqpy.protocol.requests.messages import ConsumerSendMessageBack, SendMessage
from rmqpy.protocol.static_topics import is_pseudo_broker
from rmqpy.remoting.backoff import FAILING
from rmqpy.remoting.client import Caller

log = logging.getLogger(__name__)

#: The delay level of the first retry, 10 s. Each further retry uses the next level.
FIRST_RETRY_LEVEL: Final = 3
TIMEOUT_S: Final = 5.0
#: How long a broker's limits of the group are cached.
LIMIT_S: Final = 10.0
PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

#: Properties that the broker sets in a copy of a message, which do not fit another copy.
_OF_THE_COPY: Final = frozenset(
    {"TRAN_MSG", "DELAY", "REAL_TOPIC", "REAL_QID", "MIN_OFFSET", "MAX_OFFSET", "WAIT"}
)


#: Bytes of the properties of a reduced copy: the brokers' limit of 32,767 minus room for the properties that they
#: add.
_FEWER_BYTES: Final = 30_000
#: Properties that a reduced copy keeps.
_KEPT: Final = frozenset(
    {"TAGS", "UNIQ_KEY", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY", names.CONSUME_ERROR}
)


class _Limits(NamedTuple):
    """The group's settings at a broker, with the end of their validity."""

    #: `None` if the broker does not report it.
    retries_max: int | None
    has_retries: bool
    until: float


class SendBack:
    """The send-backs of one group."""

    def __init__(
        self, cluster: ClusterConnection, caller: Caller, group: str, retries_max: int | None
    ) -> None:
        """`retries_max`: deliveries after the first; `None` uses the group's setting."""
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._retries_max = retries_max
        #: Messages that are lost to the group.
        self.lost = 0
        #: The limits by broker.
        self._limits: dict[str, _Limits] = {}
        self._asking = asyncio.Lock()

    async def send_back(self, message: ReceivedMessage, level: int = BY_POLICY, error: str = "") -> None:
        """Return a message to a broker, retrying until one has stored it. After its last attempt it becomes a dead
        letter with the error. Without retry queues the message is dropped. A copy that every broker refuses is reduced
        to fewer properties, then becomes a dead letter."""
        limits = await self._of_group(message)
        if not limits.has_retries:
            self.lost += 1
            failures.dropped(message, self._group, message.delivery_attempt, error)
            return
        retries_max = limits.retries_max if self._retries_max is None else self._retries_max
        if retries_max is not None and message.delivery_attempt > retries_max:
            await self.bury(message, retries_max, error)
            return
        has_fewer = False
        for failed in count(1):
            try:
                await self._return(message, level, retries_max)
                return
            except errors.RocketMQError as refusal:
                log.info("cannot send message %s back: %s", message.message_id, refusal)
            try:
                wanted = level or FIRST_RETRY_LEVEL + message.delivery_attempt - 1
                delay = str(min(wanted, len(DELAYS_S)))
                await self._send_again(
                    message, message.delivery_attempt, retries_max, has_fewer=has_fewer, DELAY=delay
                )
                return
            except errors.RocketMQError as refusal:
                if _is_final(refusal) and has_fewer:
                    break
                if _is_final(refusal):
                    has_fewer = True
                    continue
                log.warning(
                    "cannot send message %s back or resend it, retrying: %s",
                    message.message_id,
                    refusal,
                )
            await asyncio.sleep(FAILING.pause_s(failed))
        await self.bury(message, message.delivery_attempt - 1, error)

    async def bury(self, message: ReceivedMessage, retries_max: int, error: str) -> None:
        """Store a message as a dead letter with the error, retrying until a broker has it; like `send_back` without
        retry queues. A copy that every broker refuses is reduced to fewer properties, then dropped."""
        attempts = max(message.delivery_attempt, retries_max + 1)
        if not (await self._of_group(message)).has_retries:
            self.lost += 1
            failures.dropped(message, self._group, attempts, error)
            return
        reason = {names.CONSUME_ERROR: failures.property_text(error)}
        has_fewer = False
        for failed in count(1):
            try:
                # The attempts exceed the maximum, so the broker stores it as a dead letter.
                await self._send_again(message, attempts, retries_max, has_fewer=has_fewer, **reason)
                break
            except errors.RocketMQError as refusal:
                is_final = _is_final(refusal)
                log.info("sending message %s back without its error text: %s", message.message_id, refusal)
            try:
                await self._return(message, -1, retries_max)
                break
            except errors.RocketMQError as refusal:
                if is_final and has_fewer and _is_answer(refusal):
                    self.lost += 1
                    failures.refused(message, self._group, attempts, refusal, error)
                    return
                log.warning("cannot store message %s as a dead letter yet: %s", message.message_id, refusal)
            if is_final and not has_fewer:
                has_fewer = True
                continue
            await asyncio.sleep(FAILING.pause_s(failed))
        failures.buried(message, self._group, attempts, error)

    async def _of_group(self, message: ReceivedMessage) -> _Limits:
        queue = message.queue
        async with self._asking:
            known = self._limits.get(queue.broker)
            if known is not None and monotonic() < known.until:
                return known
            retries_max, has_retries = None, True
            try:
                route = await self._cluster.routes.subscribe(queue.topic, self._caller)
                ask = GetSubscriptionGroupConfig(group=self._group)
                settings = await self._caller.ask(route.master(route.home(queue)), ask, timeout=TIMEOUT_S)
                retries_max, has_retries = settings.retry_max_times, settings.retry_queue_nums > 0
            except errors.RocketMQError as error:
                log.info(
                    "broker %s did not return the limits of group %s: %s", queue.broker, self._group, error
                )
            known = self._limits[queue.broker] = _Limits(retries_max, has_retries, monotonic() + LIMIT_S)
            return known

    async def _return(self, message: ReceivedMessage, level: int, retries_max: int | None) -> None:
        """Have the broker of the message make the copy. Raises `ConnectError` for a logical queue, whose messages may
        be at several brokers."""
        queue = message.queue
        if is_pseudo_broker(queue.broker):
            raise errors.ConnectError(f"the broker that stores messages of {queue} is not known")
        ask = ConsumerSendMessageBack(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=retries_max,
            bname=queue.broker,
        )
        route = await self._cluster.routes.subscribe(queue.topic, self._caller)
        await self._caller.ask(route.master(queue.broker), ask, timeout=TIMEOUT_S)

    async def _send_again(
        self,
        message: ReceivedMessage,
        attempts: int,
        retries_max: int | None,
        *,
        has_fewer: bool,
        **properties: str,
    ) -> None:
        """Send a copy with this number of attempts to the group's retry topic, at any broker. `has_fewer`:
        drop the largest properties that do not fit."""
        topic = names.retry_topic(self._group)
        route = await self._cluster.routes.publish(topic, self._caller)
        queue = random.choice(route.writable)
        kept = {name: value for name, value in message.properties.items() if name not in _OF_THE_COPY}
        kept["RETRY_TOPIC"] = self._caller.wire_name(message.topic)
        kept.setdefault("ORIGIN_MESSAGE_ID", message.message_id)
        kept |= properties
        if has_fewer:
            kept = _fewer(kept, message.message_id)
        ask = SendMessage(
            producer_group=PRODUCER_GROUP,
            topic=topic,
            queue_id=queue.queue_id,
            born_timestamp=message.born_at_ms,
            flag=message.flag,
            properties=encode(kept),
            reconsume_times=attempts,
            max_reconsume_times=retries_max,
            body=message.body,
        )
        await self._caller.ask(route.master(queue.broker), ask, timeout=TIMEOUT_S)


def _is_final(refusal: errors.RocketMQError) -> bool:
    """Return whether a retry of the same copy would be refused, too. Other refusals concern the cluster, such as a
    permission, a topic or a full disk, and can be mended meanwhile."""
    return refusal.code == ResponseCode.MESSAGE_ILLEGAL or isinstance(refusal, errors.DecodeError)


def _is_answer(refusal: errors.RocketMQError) -> bool:
    """Return whether a broker has answered with anything but flow control."""
    return refusal.code is not None and not isinstance(refusal, errors.FlowControl | errors.NotStored)


def _fewer(properties: dict[str, str], message_id: str) -> dict[str, str]:
    """Return the properties without as many of the largest optional ones as needed to fit."""
    sizes = {name: len(f"{name}{value}".encode()) + 2 for name, value in properties.items()}
    total = sum(sizes.values())
    left_out = []
    for name in sorted(sizes.keys() - _KEPT, key=lambda name: (-sizes[name], name)):
        if total <= _FEWER_BYTES:
            break
        total -= sizes[name]
        left_out.append(name)
    if left_out:
        log.warning(
            "message %s has too many properties for a copy: dropping %s",
            message_id,
            ", ".join(left_out),
        )
    return {name: value for name, value in properties.items() if name not in left_out}
