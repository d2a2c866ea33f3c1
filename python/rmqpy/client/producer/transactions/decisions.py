"""Decisions: commit or roll back half messages, and answer the brokers that ask about them.

Owns the ends of one producer's transactions. Its native sender sends the half messages.

Invariant: a decision is sent again only if it has not left, because the broker may have applied it.
"""

from __future__ import annotations

import time
from typing import Final

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.producer.retry import UNSENT
from rmqpy.message import SendResult, TransactionState
from rmqpy.protocol.requests.transactions import EndTransaction
from rmqpy.remoting.backoff import BUSY
from rmqpy.remoting.client import Caller, check_transport, transport_error

#: Property of a half message: the group whose members the broker asks about it, as brokers know it.
PRODUCER_GROUP: Final = "PGROUP"


class Decisions:
    """The decisions of one producer about its half messages."""

    def __init__(self, cluster: ClusterConnection, caller: Caller, *, group: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._caller = caller
        self._group = group
        self._timeout_s = timeout_s

    async def end(self, half: SendResult, state: TransactionState) -> None:
        """Commit a half message or roll it back. Raises the broker's refusal, or the transport error."""
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
        """Return the error of a decision that was not sent, or None. Raises the error of one that was."""
        try:
            address = await self._master(half)
        except errors.ConnectError as missing:
            return missing
        call = self._caller.begin(address, ask, timeout=max(deadline - time.monotonic(), 0.001))
        await self._caller.wait(call)
        if call.failure is not None and call.failure[0] in UNSENT:
            return transport_error(*call.failure, address)
        check_transport(call, address)
        self._caller.read(ask, call, address)
        return None

    async def _master(self, half: SendResult) -> str:
        """Return the current address of the broker that has the half message."""
        topic = half.queue.topic
        route = self._cluster.routes.cached(topic, self._caller)
        if route is None:
            route = await self._cluster.routes.subscribe(topic, self._caller)
        return route.master(route.home(half.queue))


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
    """Return the request that ends a transaction, or answers a check of it."""
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
    """Return the position of a half message in the log of its broker. Raises `DecodeError`."""
    try:
        return int(half.offset_message_id[-16:], 16)
    except ValueError:
        text = f"{half.offset_message_id!r} of {half.queue.broker} is not a message id"
        raise errors.DecodeError(text, broker=half.queue.broker) from None
