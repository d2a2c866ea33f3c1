"""Transactions: the part of a producer that stores half messages, commits or rolls them back, and answers checks.

The blocking and the asynchronous producer share this code: coroutines that wait through a `Caller`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.observers import ObservedSends
from rmqpy.client.producer.host import Host
from rmqpy.client.producer.message_arguments import complete
from rmqpy.config.arguments import check_types
from rmqpy.message import Body, Message, MessageFields, SendResult, TransactionState
from rmqpy.remoting.client import Caller

if TYPE_CHECKING:
    import asyncio

    from rmqpy.client.producer.transactions.checks import TransactionChecker
    from rmqpy.client.producer.transactions.decisions import Decisions
    from rmqpy.client.trace.producer import ProducerTrace


class Transactions:
    """Transactions of one producer."""

    def __init__(
        self,
        cluster: ClusterConnection,
        group: str,
        make_decisions: Callable[[Caller], Decisions],
        checker: TransactionChecker | None,
        *,
        is_named: bool,
        observed: ObservedSends | None,
        trace: ProducerTrace | None,
    ) -> None:
        """`is_named`: the application named the group, whose members the broker asks for missing decisions."""
        self._is_named = is_named
        self._make_decisions = make_decisions
        self._decisions: Decisions | None = None
        self._observed = observed
        self._trace = trace
        self.has_checker = checker is not None
        if checker is not None:
            # Imports asyncio, which few producers need.
            from rmqpy.client.producer.transactions.checks import GroupChecker, TransactionChecks

            self._checks = cluster.shared(TransactionChecks)
            self._checker = GroupChecker(group, checker, None if trace is None else trace.decided)
            self._checks.join(self._checker)

    def check_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run a checker that is a coroutine function in this loop."""
        if self.has_checker:
            self._checker.loop = loop

    def close(self) -> None:
        """Remove the checker. Idempotent."""
        if self.has_checker:
            self._checks.leave(self._checker)

    def message(
        self, host: Host, message: Message | str, body: Body | None, fields: MessageFields
    ) -> Message:
        """Return the message of a transaction. Raises `ConfigError` for a producer without a group."""
        host._check_open()
        if not self._is_named:
            raise errors.ConfigError(
                "transactions need a group: the broker asks its members for missing decisions",
                hint="name the application: Producer(group='shop', ...)",
            )
        if fields or isinstance(message, str) or body is not None:
            message, _ = complete(message, body, fields)
        check_types(message=(message, Message))
        return message

    async def begin(self, host: Host, message: Message) -> SendResult:
        """Store a half message."""
        host._check_open()
        message = host._intercept(message, None)
        if self._observed is not None:
            self._observed.mark_half(message)
        try:
            with host._accepted:
                to = await host._choose(message, None)
                [half] = await host._stored(message.topic, partial(host._sender.send_half, message, to=to))
        except BaseException as error:
            host._tell(message, error)
            raise
        if half.transaction_id is None:
            half = half._replace(transaction_id=half.message_id)
        host._tell(message, half)
        return half

    async def end(self, host: Host, message: Message, half: SendResult, state: TransactionState) -> None:
        """Commit a half message or roll it back."""
        host._check_open()
        with host._accepted:
            if self._decisions is None:
                self._decisions = self._make_decisions(host._caller)
            await self._decisions.end(half, state)
        if self._trace is not None:
            self._trace.ended(message, half, state)
