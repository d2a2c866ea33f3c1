"""Outbox for SQLAlchemy: messages that are sent exactly if a session commits.

::

    producer = rmqpy.Producer(
        group="shop", transaction_checker=row_checker(sessionmaker(engine), Purchase.id)
    )
    with Session(engine) as session, transaction(producer, session, "orders", b"...", keys="A-1"):
        session.add(Purchase(id="A-1"))

`async_transaction` and `async_row_checker` are the same for an `AsyncProducer` and an `AsyncSession`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from sqlalchemy import select
from sqlalchemy.orm import Session

from rmqpy.client.producer.producer import Producer
from rmqpy.client.producer.producer_async import AsyncProducer
from rmqpy.client.producer.transactions.transaction import AsyncTransaction, Transaction
from rmqpy.contrib.outbox import LONGEST, async_checker, checker, together, together_async
from rmqpy.message import Body, Message, MessageFields, ReceivedMessage

if TYPE_CHECKING:
    # Needs greenlet, which SQLAlchemy does not install by itself everywhere.
    from sqlalchemy.ext.asyncio import AsyncSession


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


@asynccontextmanager
async def async_transaction(
    producer: AsyncProducer,
    session: AsyncSession,
    message: Message | str,
    body: Body | None = None,
    /,
    **fields: Unpack[MessageFields],
) -> AsyncIterator[AsyncTransaction]:
    """As `transaction`, for `async with`. If its task is cancelled during the database's commit, the producer's checker
    decides.
    """
    async with together_async(producer.transaction(message, body, **fields), session.begin) as begun:
        yield begun


def row_checker(
    sessions: Callable[[], Session], column: Any, *, longest: timedelta = LONGEST
) -> Callable[[ReceivedMessage], bool | None]:
    """Return the `transaction_checker` of a producer: it commits a message if the table of `column` has a row with the
    message's first key.

    `sessions` opens a session, for example a `sessionmaker`. `longest` is the longest time from the start of a
    transaction to its end: a message without a row is rolled back after it.
    """

    row = _row_of(column)

    def exists(key: str) -> bool:
        with sessions() as session:
            return session.execute(row(key)).first() is not None

    return checker(exists, longest)


def async_row_checker(
    sessions: Callable[[], AsyncSession], column: Any, *, longest: timedelta = LONGEST
) -> Callable[[ReceivedMessage], Awaitable[bool | None]]:
    """As `row_checker`, for an `AsyncProducer`, in whose event loop it runs. `sessions` is for example an
    `async_sessionmaker`.
    """

    row = _row_of(column)

    async def exists(key: str) -> bool:
        async with sessions() as session:
            return (await session.execute(row(key))).first() is not None

    return async_checker(exists, longest)


def _row_of(column: Any) -> Callable[[str], Any]:
    """Return the query for the row with a key."""
    kind = column.type.python_type
    return lambda key: select(column).where(column == kind(key)).limit(1)
