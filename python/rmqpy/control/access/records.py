"""Permissions on records: a request that names a record needs a permission on the record's actual topic.

The topic in such a request is only a claim. Threads: any.
"""

from __future__ import annotations

from rmqpy._native import Server, record_destination, record_topic
from rmqpy.protocol.access import Action, ResourceKind
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.remoting.server import Refused, RequestContext


class RecordRights:
    """Checks permissions on the topics of records."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def check(self, record: bytes, action: Action, code: RequestCode, context: RequestContext) -> None:
        """Raise `Refused` if the sender lacks a permission on the record's topic."""
        if context.is_guarded:
            self.check_topic(record_topic(record), action, code, context)

    def check_destination(
        self, record: bytes, action: Action, code: RequestCode, context: RequestContext
    ) -> None:
        """Likewise for the topic of the committed message of a half message."""
        if context.is_guarded:
            self.check_topic(record_destination(record), action, code, context)

    def check_topic(self, topic: str, action: Action, code: RequestCode, context: RequestContext) -> None:
        """Raise `Refused` if the sender lacks a permission on the topic."""
        if not context.is_guarded:
            return
        needs = [(ResourceKind.TOPIC.value, topic, [action.value])]
        refusal = self._server.authorize(code, context.user, context.address, needs)
        if refusal is not None:
            raise Refused(ResponseCode.NO_PERMISSION, refusal)
