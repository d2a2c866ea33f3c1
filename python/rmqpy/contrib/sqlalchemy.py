"""Outbox for SQLAlchemy: messages that are sent exactly if a session commits.

::

    producer = rmqpy.Producer(
        group="shop", transaction_checker=row_checker(sessionmaker(engine), Purchase.id)
    )
    with Session(engine) as session, transaction(producer, session, "orders", b"...", keys="A-1"):
        session.add(Purchase(id="A-1"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Unpack

from sqlalchemy import select
from sqlalchemy.orm import Session

from rmqpy.client.producer.producer import Producer
from rmqpy.client.producer.transactions.transaction import Transaction
from rmqpy.contrib.outbox import LONGEST, checker, together
from rmqpy.message import Body, Message, MessageFields, ReceivedMessage


@contextmanager
def transaction(
    producer: Producer,
    session: Session,
    message: Message | str,
    body: Body | None = None,
    /,
    **fields: Unpack[MessageFields],
) -> Iterator[Transaction]:
    """Run the block in a transaction of `session`, and send the message exactly if it commits.

    The first key of the message names a row that the block writes. Raises as `Producer.transaction` before the block;
    after the database's commit nothing of the broker is raised, because its checks decide.
    """
    with together(producer.transaction(message, body, **fields), session.begin) as begun:
        yield begun


def row_checker(
    sessions: Callable[[], Session], column: Any, *, longest: timedelta = LONGEST
) -> Callable[[ReceivedMessage], bool | None]:
    """Return the `transaction_checker` of a producer: it commits a message if the table of `column` has a row with the
    message's first key.

    `sessions` opens a session, for example a `sessionmaker`. `longest` is the longest time from the start of a
    transaction to its end: a message without a row is rolled back after it.
    """
    kind = column.type.python_type

    def exists(key: str) -> bool:
        with sessions() as session:
            return session.execute(select(column).where(column == kind(key)).limit(1)).first() is not None

    return checker(exists, longest)
