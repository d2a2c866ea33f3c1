"""Transactions: a message that consumers see only if the application's own work succeeds.

Owns the life of one transaction: entered once, decided once. Any thread, or the producer's event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from rmqpy import errors
from rmqpy.message import Message, SendResult, TransactionState
from rmqpy.remoting.client import blocking, run

log = logging.getLogger(__name__)

#: Stores the half of a message.
_Begin = Callable[[Message], Awaitable[SendResult]]
#: Sends the decision to the broker.
_End = Callable[[Message, SendResult, TransactionState], Awaitable[None]]


class _TransactionBase:
    """The life of a transaction, in threads and in event loops."""

    def __init__(self, message: Message, begin: _Begin, end: _End) -> None:
        self._message = message
        self._begin = begin
        self._end = end
        self._is_begun = False
        self._half: SendResult | None = None
        self._state = TransactionState.UNKNOWN
        self._is_over = False

    def __repr__(self) -> str:
        word = "open" if self._half is not None and not self._is_over else self._state.name.lower()
        return f"<{type(self).__name__} to {self._message.topic}: {word}>"

    @property
    def message(self) -> Message:
        """The message that is committed or rolled back."""
        return self._message

    @property
    def half(self) -> SendResult:
        """The place of the half message. Its `message_id` is final; its queue offset differs from that of the committed
        message. Raises `TransactionError` before the block is entered."""
        if self._half is None:
            raise errors.TransactionError(
                "the transaction has not started", hint="with producer.transaction(...) as transaction: ..."
            )
        return self._half

    @property
    def state(self) -> TransactionState:
        """The confirmed decision; `UNKNOWN` until the broker confirms it."""
        return self._state

    def leave_unknown(self) -> None:
        """Leave the decision open, however the block ends: the broker asks a `transaction_checker` of the group later.

        For steps that may have succeeded although they failed, such as a commit whose reply was lost. Raises
        `TransactionError` if the transaction is already decided.
        """
        self._undecided()
        self._is_over = True

    async def _commit(self) -> None:
        """Make the message visible to consumers now; the end of the block then does nothing.

        Raises `TransactionError` if the broker refuses, or its reply is missing: the message may be visible then,
        and if it is not, the broker asks a `transaction_checker` of the group.
        """
        await self._decide(TransactionState.COMMIT)

    async def _rollback(self) -> None:
        """Discard the message now; the end of the block then does nothing. Raises like `commit`."""
        await self._decide(TransactionState.ROLLBACK)

    async def _enter(self) -> None:
        if self._is_begun:
            raise errors.TransactionError(
                "a transaction can be entered only once", hint="call producer.transaction(...) again"
            )
        self._is_begun = True
        half = await self._begin(self._message)
        self._half = half
        if half.ok:
            return
        # As in Java: do not rely on a half message that is stored less safely than promised.
        await self._roll_back_quietly()
        raise errors.NotStored(
            f"the half message to {self._message.topic} is stored, but {half.status.name}; it is rolled back",
            code=half.status.value,
            broker=half.queue.broker,
            topic=self._message.topic,
        )

    async def _exit(self, error: BaseException | None) -> None:
        if self._is_over:
            return
        if error is None:
            await self._commit()
        else:
            await self._roll_back_quietly()

    async def _roll_back_quietly(self) -> None:
        """Roll back without raising, because the caller raises another error."""
        try:
            await self._rollback()
        except errors.RocketMQError as error:
            log.warning("cannot roll back a failed transaction: %s", error)

    async def _decide(self, state: TransactionState) -> None:
        half = self._undecided()
        self._is_over = True
        try:
            await self._end(self._message, half, state)
        except errors.RocketMQError as error:
            raise _not_ended(half, state, error) from error
        self._state = state

    def _undecided(self) -> SendResult:
        half = self.half
        if self._is_over:
            text = f"the transaction of {half.message_id} is over: {self._state.name}"
            raise errors.TransactionError(text, topic=half.queue.topic)
        return half


class Transaction(_TransactionBase):
    """A message that consumers see if the work in the block succeeds. Created by `Producer.transaction`.

    ::

        with producer.transaction("orders", b"...", keys="A-1"):
            database.commit()

    Entering the block stores the message as a half message, which consumers do not see. Leaving it commits; an
    exception rolls back and propagates. If neither happens, because the process died, the broker was unreachable or
    `leave_unknown` was called, the broker asks a `transaction_checker` of the producer's group.
    """

    commit = blocking(_TransactionBase._commit)
    rollback = blocking(_TransactionBase._rollback)

    def __enter__(self) -> Self:
        run(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._exit(error))


class AsyncTransaction(_TransactionBase):
    """`Transaction`, for event loops: `async with`, and `commit` and `rollback` are awaited. Created by
    `AsyncProducer.transaction`.

    A task that is cancelled inside the block rolls back. A task that is cancelled while it enters or leaves the block
    may leave the decision to a `transaction_checker`.
    """

    commit = _TransactionBase._commit
    rollback = _TransactionBase._rollback

    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit(error)


def _not_ended(
    half: SendResult, state: TransactionState, error: errors.RocketMQError
) -> errors.TransactionError:
    word = "commit" if state is TransactionState.COMMIT else "rollback"
    hint = None
    if error.code is None:
        hint = "if the broker did not apply it, it will ask a transaction_checker of the group"
    return errors.TransactionError(
        f"the {word} of {half.message_id} to {half.queue.topic} is not confirmed: {error}",
        code=error.code,
        remark=error.remark,
        broker=half.queue.broker,
        topic=half.queue.topic,
        hint=hint,
    )
