"""Half messages: stored where no consumer sees them, until their producer has decided.

Owns the requests of one producer's transactions. They are written here, not by the native half: a transaction waits
for two answers of a broker, and for whatever its application does between them.

Invariant: a half is sent again only where no broker can have it. A second half of one transaction would be asked about,
too, and the message of an application that committed once be there twice. For the same reason a decision is sent again
only where it has not left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from rmqpy import errors
from rmqpy.client import outcome, retry
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.compression import compressed
from rmqpy.client.routes import Route
from rmqpy.client.selectors import by_sharding_key, round_robin
from rmqpy.message import Message, MessageQueue, SendResult, TransactionState
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import decode_reply
from rmqpy.protocol.ids import UniqueIds
from rmqpy.protocol.properties import encode
from rmqpy.protocol.requests.messages import SendMessage
from rmqpy.protocol.requests.transactions import EndTransaction
from rmqpy.remoting.backoff import BUSY
from rmqpy.remoting.client import Caller, check_transport, transport_error

if TYPE_CHECKING:
    from rmqpy._native import Call

#: Property of a half: the group whose members the broker asks about it, as brokers know it.
PRODUCER_GROUP: Final = "PGROUP"
#: Bit of a system flag: a half.
_PREPARED: Final = 0x4
#: Failures of requests that have not left.
_UNSENT: Final = frozenset({"connect", "overloaded"})


class HalfMessages:
    """Half messages of one producer, and the decisions about them."""

    def __init__(
        self,
        cluster: ClusterConnection,
        caller: Caller,
        group: str,
        *,
        timeout_s: float,
        retries: int,
        compress_above: int | None,
        body_bytes_max: int,
        is_slow: Callable[[str], bool],
        learn_region: Callable[[str, str | None, bool], None],
    ) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._timeout_s = timeout_s
        self._retries = retries
        self._compress_above = compress_above
        self._body_bytes_max = body_bytes_max
        self._is_slow = is_slow
        self._learn_region = learn_region
        self._turns = round_robin()
        self._ids = UniqueIds()

    async def send(self, message: Message, route: Route, queue: MessageQueue | None) -> SendResult:
        """Store a half, in the queue of the caller's choice where there is one.

        Raises `SendError` with every attempt listed.
        """
        unique_id, deadline = self._ids.next(), time.monotonic() + self._timeout_s
        body, sys_flag = self._packed(message)
        properties = encode(dict(self._properties(message, unique_id)))
        queue = queue or self._queue(message, route.writable)
        failed: list[outcome.AttemptFacts] = []
        while True:
            ask = SendMessage(
                producer_group=self._group,
                topic=message.topic,
                queue_id=queue.queue_id,
                sys_flag=sys_flag,
                born_timestamp=round(time.time() * 1_000),
                flag=message.flag,
                properties=properties,
                body=body,
            )
            began = time.monotonic()
            address = route.sender(queue.broker)
            call = self._caller.begin(address, ask, timeout=max(deadline - began, 0.001))
            await self._caller.wait(call)
            if call.failure is None and call.code in outcome.STATUSES:
                stored = decode_reply(SendMessage, call.ext, call.body)
                self._learn_region(queue.broker, stored.region, stored.trace_on is not False)
                return SendResult(
                    message_id=unique_id,
                    offset_message_id=stored.msg_id,
                    queue=MessageQueue(message.topic, queue.broker, stored.queue_id),
                    queue_offset=stored.queue_offset,
                    status=outcome.STATUSES[call.code],
                    transaction_id=stored.transaction_id or unique_id,
                    attempts=len(failed) + 1,
                )
            kind, code, text = _failure(call)
            failed.append((queue.broker, queue.queue_id, address, kind, code, text, time.monotonic() - began))
            is_worth_it = code in retry.ELSEWHERE if code is not None else kind in _UNSENT
            self._cluster.routes.doubt(message.topic, is_gone=code == ResponseCode.TOPIC_NOT_EXIST)
            if not is_worth_it or len(failed) > self._retries or time.monotonic() >= deadline:
                raise outcome.not_sent(message.topic, failed)
            route = self._cluster.routes.cached(message.topic, self._caller) or route
            if message.sharding_key is None:
                tried = {facts[0] for facts in failed}
                others = [each for each in route.writable if each.broker not in tried]
                queue = self._queue(message, others or route.writable or [queue])
            if queue.broker == failed[-1][0]:
                pause_s = BUSY.pause_s(len(failed))
                await self._caller.sleep(min(pause_s, max(deadline - time.monotonic(), 0.0)))

    async def end(self, half: SendResult, state: TransactionState) -> None:
        """Commit a half or roll it back. Raises what the broker says, or what kept its answer away."""
        ask = decision(
            self._group,
            half.queue.topic,
            half.message_id,
            queue_offset=half.queue_offset,
            position=position_of(half),
            state=state,
            broker=half.queue.broker,
        )
        deadline = time.monotonic() + self._timeout_s
        failures = 0
        while True:
            unsent = await self._end_once(ask, half, deadline)
            if unsent is None:
                return
            failures += 1
            pause_s = BUSY.pause_s(failures)
            if time.monotonic() + pause_s > deadline:
                raise unsent
            self._cluster.routes.doubt(half.queue.topic)
            await self._caller.sleep(pause_s)

    async def _end_once(
        self, ask: EndTransaction, half: SendResult, deadline: float
    ) -> errors.RocketMQError | None:
        """The reason why a decision has not left. Raises what became of one that has."""
        try:
            address = await self._master(half)
        except errors.ConnectError as missing:
            return missing
        call = self._caller.begin(address, ask, timeout=max(deadline - time.monotonic(), 0.001))
        await self._caller.wait(call)
        if call.failure is not None and call.failure[0] in _UNSENT:
            return transport_error(*call.failure, address)
        check_transport(call, address)
        self._caller.read(ask, call, address)
        return None

    async def _master(self, half: SendResult) -> str:
        """The broker that has the half, where it is now."""
        topic = half.queue.topic
        route = self._cluster.routes.cached(topic, self._caller)
        if route is None:
            route = await self._cluster.routes.subscribe(topic, self._caller)
        return route.master(half.queue.broker)

    def _queue(self, message: Message, queues: Iterable[MessageQueue]) -> MessageQueue:
        every = tuple(queues)
        if message.sharding_key is not None:
            return by_sharding_key(message, every)
        return self._turns(message, [each for each in every if not self._is_slow(each.broker)] or every)

    def _packed(self, message: Message) -> tuple[bytes, int]:
        """The body as it travels, and the system flag that says so."""
        body = message.body
        if len(body) > self._body_bytes_max:
            raise errors.MessageTooLarge(
                f"the body has {len(body)} bytes, brokers take {self._body_bytes_max}",
                topic=message.topic,
                hint="send it in parts, or raise max_message_size here and maxMessageSize in broker.conf",
            )
        packed, sys_flag = compressed(body, self._compress_above)
        return packed, sys_flag | _PREPARED

    def _properties(self, message: Message, unique_id: str) -> Iterable[tuple[str, str]]:
        yield from message.properties.items()
        if message.keys:
            yield "KEYS", " ".join(message.keys)
        if message.tag is not None:
            yield "TAGS", message.tag
        if message.sharding_key is not None:
            yield "__SHARDINGKEY", message.sharding_key
        if message.deliver_at is not None:
            yield "TIMER_DELIVER_MS", str(round(message.deliver_at * 1_000))
        if message.deliver_after is not None:
            yield "TIMER_DELAY_MS", str(round(message.deliver_after * 1_000))
        if message.delay_level is not None:
            yield "DELAY", str(message.delay_level)
        if message.priority is not None:
            yield "_SYS_MSG_PRIORITY_", str(message.priority)
        yield "WAIT", "true"
        yield "UNIQ_KEY", unique_id
        if self._caller.namespace is not None:
            yield "INSTANCE_ID", self._caller.namespace.name
        yield "TRAN_MSG", "true"
        yield PRODUCER_GROUP, self._caller.wire_name(self._group)


def decision(
    group: str,
    topic: str,
    message_id: str,
    *,
    queue_offset: int,
    position: int,
    state: TransactionState,
    broker: str | None,
    is_asked: bool = False,
) -> EndTransaction:
    """The request that ends a transaction, or answers the broker that asked about it."""
    return EndTransaction(
        topic=topic,
        producer_group=group,
        tran_state_table_offset=queue_offset,
        commit_log_offset=position,
        commit_or_rollback=state.value,
        from_transaction_check=is_asked,
        msg_id=message_id,
        transaction_id=message_id,
        bname=broker,
    )


def position_of(half: SendResult) -> int:
    """Position of a half in the log of its broker. Raises `DecodeError`."""
    try:
        return int(half.offset_message_id[-16:], 16)
    except ValueError:
        text = f"{half.offset_message_id!r} of {half.queue.broker} is no message id"
        raise errors.DecodeError(text, broker=half.queue.broker) from None


def _failure(call: Call) -> tuple[str, int | None, str]:
    """Kind, response code and text of an attempt that stored nothing, or may not have."""
    if call.failure is not None:
        kind, text = call.failure
        return kind, None, text
    return "broker", call.code, call.remark or ""
