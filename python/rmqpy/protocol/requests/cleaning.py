"""Requests of administrators to delete what nobody needs any more."""

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, request


@request(RequestCode.DELETE_EXPIRED_COMMITLOG)
class DeleteExpiredCommitLog(Request[None]):
    """Delete expired files of the log now, whatever the hour."""


@request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
class CleanExpiredConsumeQueue(Request[None]):
    """Delete files of queues whose messages are all gone."""
