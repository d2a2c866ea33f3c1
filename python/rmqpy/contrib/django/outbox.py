"""Outbox for Django: messages that are sent exactly if a transaction of the database commits.

::

    producer = rmqpy.Producer(group="shop", transaction_checker=row_checker(Purchase))
    with atomic(producer, "orders", b"...", keys="A-1"):
        Purchase.objects.create(id="A-1")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Unpack

from django.db import close_old_connections, transaction

from rmqpy.client.producer.producer import Producer
from rmqpy.client.producer.transactions.transaction import Transaction
from rmqpy.contrib.outbox import LONGEST, checker, together
from rmqpy.message import Body, Message, MessageFields, ReceivedMessage


@contextmanager
def atomic(
    producer: Producer,
    message: Message | str,
    body: Body | None = None,
    /,
    *,
    using: str | None = None,
    **fields: Unpack[MessageFields],
) -> Iterator[Transaction]:
    """Run the block in a transaction of the database `using`, and send the message exactly if it commits.

    The first key of the message names a row that the block writes. Like `transaction.atomic(durable=True)`, it cannot
    be nested in another atomic block, whose end would decide instead.
    """
    if transaction.get_connection(using).in_atomic_block:
        # Before the half message is stored.
        raise RuntimeError("an outbox block cannot be nested in another atomic block")
    work = partial(transaction.atomic, using=using, durable=True)
    with together(producer.transaction(message, body, **fields), work) as begun:
        yield begun


def row_checker(
    model: Any, field: str = "pk", *, using: str | None = None, longest: timedelta = LONGEST
) -> Callable[[ReceivedMessage], bool | None]:
    """Return the `transaction_checker` of a producer: it commits a message if `model` has a row whose `field` is the
    message's first key.

    `longest` is the longest time from the start of a transaction to its end: a message without a row is rolled back
    after it.
    """

    def exists(key: str) -> bool:
        # The checker has its own thread, outside of requests.
        close_old_connections()
        try:
            found: bool = model._default_manager.using(using).filter(**{field: key}).exists()
        finally:
            close_old_connections()
        return found

    return checker(exists, longest)
