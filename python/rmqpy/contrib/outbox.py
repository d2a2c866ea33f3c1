"""Steps of the outbox helpers: a message that is sent exactly if a database transaction commits.

The half message is stored before the database's transaction, and decided after it. If the process dies in between, the
broker asks the checker, which reads the application's own row: no outbox table, and no process that reads one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from datetime import UTC, datetime, timedelta
from typing import Final

from rmqpy import errors
from rmqpy.client.producer.transactions.transaction import AsyncTransaction, Transaction
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

#: The longest time that a transaction of the database takes, by default.
LONGEST: Final = timedelta(minutes=2)


class _Decision:
    """How far a transaction of the database came, and what an exception means then."""

    def __init__(self, transaction: Transaction | AsyncTransaction) -> None:
        self.is_committing = self._is_committed = False
        self._transaction = transaction

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Around the database's transaction: a commit that failed may have happened."""
        try:
            yield
        except BaseException:
            if self.is_committing:
                # The block itself may have decided.
                with suppress(errors.TransactionError):
                    self._transaction.leave_unknown()
            raise
        self._is_committed = True

    @contextmanager
    def confirmation(self) -> Iterator[None]:
        """Around the message's transaction: a broker that has not confirmed the decision asks the checker."""
        try:
            yield
        except errors.TransactionError as error:
            if not self._is_committed:
                raise
            topic = self._transaction.message.topic
            log.warning("the broker will ask about a message to %s: %s", topic, error)


@contextmanager
def together(
    transaction: Transaction, work: Callable[[], AbstractContextManager[object]]
) -> Iterator[Transaction]:
    """Store the half message, do the work of the block in `work()`, a transaction of the database, and decide.

    An exception of the block rolls back both. If the commit of the database fails, it may have happened: the decision
    is left to the checker, as it is if the broker does not confirm the decision.
    """
    decision = _Decision(transaction)
    with decision.confirmation(), transaction, decision.commit(), work():
        yield transaction
        decision.is_committing = True


@asynccontextmanager
async def together_async(
    transaction: AsyncTransaction, work: Callable[[], AbstractAsyncContextManager[object]]
) -> AsyncIterator[AsyncTransaction]:
    """As `together`, in an event loop. A task that is cancelled during a commit leaves the decision to the checker."""
    decision = _Decision(transaction)
    with decision.confirmation():
        async with transaction:
            with decision.commit():
                async with work():
                    yield transaction
                    decision.is_committing = True


def checker(
    exists: Callable[[str], bool], longest: timedelta = LONGEST
) -> Callable[[ReceivedMessage], bool | None]:
    """Return a `transaction_checker`: commit if the row with the message's first key exists.

    Without the row the decision is open while a transaction that started with the message may still run, `longest`, and
    is to roll back then.
    """

    def check(message: ReceivedMessage) -> bool | None:
        return _decision(message, exists(_key(message)), longest)

    return check


def async_checker(
    exists: Callable[[str], Awaitable[bool]], longest: timedelta = LONGEST
) -> Callable[[ReceivedMessage], Awaitable[bool | None]]:
    """As `checker`, for a coroutine function."""

    async def check(message: ReceivedMessage) -> bool | None:
        return _decision(message, await exists(_key(message)), longest)

    return check


def _key(message: ReceivedMessage) -> str:
    if not message.keys:
        raise ValueError(f"message {message.message_id} names no row: send it with keys=")
    return message.keys[0]


def _decision(message: ReceivedMessage, has_row: bool, longest: timedelta) -> bool | None:
    if has_row:
        return True
    return None if datetime.now(UTC) - message.born_at < longest else False
