"""Transactions: what a broker asks of producers, and what they tell it."""

from rmqpy.protocol.access import Action, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, request


@request(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionState(Request[None]):
    """Broker to client, one-way: decide about a half message. The answer is an END_TRANSACTION."""

    #: Where the half lies.
    topic: Resource | None = None
    tran_state_table_offset: int
    commit_log_offset: int
    #: The message's `UNIQ_KEY`, and its place as an id.
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None
    #: The record as it would be after a commit, in the place of the half.
    body: bytes


@request(RequestCode.END_TRANSACTION, needs=(topic("topic", Action.PUB, optional=True),))
class EndTransaction(Request[None]):
    """What a producer has decided about a half message. One that decides nothing gets no answer."""

    topic: Resource | None = None
    producer_group: Resource
    #: Offset of the half message in its queue.
    tran_state_table_offset: int
    #: Its position in the log.
    commit_log_offset: int
    #: The transaction bits of a system flag.
    commit_or_rollback: int
    #: Whether the broker has asked.
    from_transaction_check: bool = False
    #: The message's `UNIQ_KEY`.
    msg_id: str
    transaction_id: str | None = None
    bname: str | None = None


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE, needs=(topic("topic", Action.UPDATE),))
class ResumeCheckHalfMessage(Request[None]):
    """Have producers asked about a half message again, from the first time on: one that was given up, or is open."""

    topic: Resource | None = None
    #: Its offset message id: of the message in the topic of those that were given up.
    msg_id: str
