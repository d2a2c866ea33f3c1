"""Rights on records: a request that points at a record needs what it does on the record's own topic.

What a request says about the topic of such a record is a claim. Threads: any.
"""

from __future__ import annotations

from rmqpy._native import Server, record_destination, record_topic
from rmqpy.protocol.access import Action, ResourceKind
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.remoting.server import Refused, RequestContext


class RecordRights:
    """Asks the rules about the topics of records."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def check(self, record: bytes, action: Action, code: RequestCode, context: RequestContext) -> None:
        """Raise `Refused` where the sender may not do this to messages of the record's topic."""
        if context.is_guarded:
            self.check_topic(record_topic(record), action, code, context)

    def check_destination(
        self, record: bytes, action: Action, code: RequestCode, context: RequestContext
    ) -> None:
        """The same for the topic in which the message of a half will be, or would have been."""
        if context.is_guarded:
            self.check_topic(record_destination(record), action, code, context)

    def check_topic(self, topic: str, action: Action, code: RequestCode, context: RequestContext) -> None:
        """Raise `Refused` where the sender may not do this to the topic."""
        if not context.is_guarded:
            return
        needs = [(ResourceKind.TOPIC.value, topic, [action.value])]
        refusal = self._server.authorize(code, context.user, context.address, needs)
        if refusal is not None:
            raise Refused(ResponseCode.NO_PERMISSION, refusal)
