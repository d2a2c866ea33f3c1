"""Single messages: by position in the log, by key."""

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, reply, request, wire


@reply
class QueriedMessages:
    """Records as they lie in the log, newest first, and how far the index reaches."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int
    body: bytes


@request(RequestCode.QUERY_MESSAGE)
class QueryMessage(Request[QueriedMessages]):
    """Messages whose key hash matches; the caller compares the keys."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    is_unique_key: bool = wire("_UNIQUE_KEY_QUERY", default=False)
    index_type: str | None = None


@reply
class ViewedMessage:
    """One record as it lies in the log."""

    body: bytes


@request(RequestCode.VIEW_MESSAGE_BY_ID)
class ViewMessageById(Request[ViewedMessage]):
    """The message at a position of the log; an offset message id is address and position."""

    offset: int
    topic: str | None = None
