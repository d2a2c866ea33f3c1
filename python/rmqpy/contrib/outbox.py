"""Steps of the outbox helpers: a message that is sent exactly if a database transaction commits.

The half message is stored before the database's transaction, and decided after it. If the process dies in between, the
broker asks the checker, which reads the application's own row: no outbox table, and no process that reads one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from rmqpy import errors
from rmqpy.client.producer.transactions.transaction import Transaction
from rmqpy.message import ReceivedMessage

log = logging.getLogger(__name__)

#: The longest time that a transaction of the database takes, by default.
LONGEST: Final = timedelta(minutes=2)


@contextmanager
def together(
    transaction: Transaction, work: Callable[[], AbstractContextManager[object]]
) -> Iterator[Transaction]:
    """Store the half message, do the work of the block in `work()`, a transaction of the database, and decide.

    An exception of the block rolls back both. If the commit of the database fails, it may have happened: the decision
    is left to the checker, as it is if the broker does not confirm the decision.
    """
    is_committed = is_committing = False
    try:
        with transaction:
            try:
                with work():
                    yield transaction
                    is_committing = True
            except BaseException:
                if is_committing:
                    # The block itself may have decided.
                    with suppress(errors.TransactionError):
                        transaction.leave_unknown()
                raise
            is_committed = True
    except errors.TransactionError as error:
        if not is_committed:
            raise
        log.warning("the broker will ask about a message to %s: %s", transaction.message.topic, error)


def checker(
    exists: Callable[[str], bool], longest: timedelta = LONGEST
) -> Callable[[ReceivedMessage], bool | None]:
    """Return a `transaction_checker`: commit if the row with the message's first key exists.

    Without the row the decision is open while a transaction that started with the message may still run, `longest`, and
    is to roll back then.
    """

    def check(message: ReceivedMessage) -> bool | None:
        if not message.keys:
            raise ValueError(f"message {message.message_id} names no row: send it with keys=")
        if exists(message.keys[0]):
            return True
        return None if datetime.now(UTC) - message.born_at < longest else False

    return check
