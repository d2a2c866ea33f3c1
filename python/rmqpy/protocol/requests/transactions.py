"""Transactions: checks of a broker, and decisions of producers."""

from rmqpy.protocol.access import Action, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, request


@request(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionState(Request[None]):
    """Broker to client, one-way: check of a half message. The answer is an END_TRANSACTION."""

    #: The position of the half message.
    topic: Resource | None = None
    tran_state_table_offset: int
    commit_log_offset: int
    #: The message's `UNIQ_KEY`, and its offset message id.
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None
    #: The record after a commit, instead of the half message.
    body: bytes


@request(RequestCode.END_TRANSACTION, needs=(topic("topic", Action.PUB, optional=True),))
class EndTransaction(Request[None]):
    """A producer's decision about a half message. An undecided one gets no reply."""

    topic: Resource | None = None
    producer_group: Resource
    #: Offset of the half message in its queue.
    tran_state_table_offset: int
    #: Its position in the log.
    commit_log_offset: int
    #: The transaction bits of a system flag.
    commit_or_rollback: int
    #: Whether it answers a check.
    from_transaction_check: bool = False
    #: The message's `UNIQ_KEY`.
    msg_id: str
    transaction_id: str | None = None
    bname: str | None = None


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE, needs=(topic("topic", Action.UPDATE),))
class ResumeCheckHalfMessage(Request[None]):
    """Start the checks of a half message again, whether given up or open."""

    topic: Resource | None = None
    #: Its offset message id in the topic of given up messages.
    msg_id: str
