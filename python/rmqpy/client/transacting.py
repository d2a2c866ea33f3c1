"""Transactions of both producers: the half message, and its end. Written once, as coroutines over a `Caller`."""

from __future__ import annotations

from abc import ABC
from functools import cached_property

from rmqpy import errors
from rmqpy.client.half_messages import HalfMessages
from rmqpy.client.message_arguments import complete
from rmqpy.client.producer_base import DEFAULT_GROUP, ProducerBase
from rmqpy.config.arguments import check_types
from rmqpy.message import Body, Message, MessageFields, MessageQueue, SendResult, TransactionState


class TransactingProducer(ProducerBase, ABC):
    """A producer that sends half messages."""

    @cached_property
    def _half_messages(self) -> HalfMessages:
        return HalfMessages(
            self._cluster,
            self._caller,
            self.group,
            timeout_s=self._send_timeout_s,
            retries=self._retries,
            compress_above=self._compress_above,
            body_bytes_max=self._body_bytes_max,
            is_slow=self._sender.is_slow,
            learn_region=self._sender.learn_region,
        )

    def _transacted(self, message: Message | str, body: Body | None, fields: MessageFields) -> Message:
        """The message of a transaction."""
        self._check_open()
        if self.group == DEFAULT_GROUP:
            raise errors.ConfigError(
                "transactions need a group, whose members the broker asks about those left undecided",
                hint="name the application: Producer(group='shop', ...)",
            )
        if fields or isinstance(message, str) or body is not None:
            message, _ = complete(message, body, fields)
        check_types(message=(message, Message))
        return message

    async def _begin_half(self, message: Message) -> SendResult:
        self._check_open()
        message = self._intercept(message, None)
        if self._observed is not None:
            self._observed.mark_half(message)
        try:
            with self._accepted:
                to = await self._choose(message, None)
                queue = None if to is None else MessageQueue(message.topic, to[1], to[2])
                half = await self._half_messages.send(message, await self._route(message.topic), queue)
        except BaseException as error:
            self._tell(message, error)
            raise
        self._tell(message, half)
        return half

    async def _end_half(self, message: Message, half: SendResult, state: TransactionState) -> None:
        self._check_open()
        with self._accepted:
            await self._half_messages.end(half, state)
        if self._trace is not None:
            self._trace.ended(message, half, state)
