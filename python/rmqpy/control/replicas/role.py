"""Role of the broker: what a slave refuses beyond what the data plane does. Threads: the event loop's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqpy._native import Metadata
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.requests.registration import Registered
from rmqpy.remoting.server import Refused

#: Requests for what a slave copies, or would store, with the code of the refusal: the original's, where it has one.
_OF_THE_MASTER: Final = {
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            # A topic may be new, and its configuration not copied yet.
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            RequestCode.CLONE_GROUP_OFFSET,
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
        ),
        ResponseCode.SYSTEM_ERROR,
    ),
    RequestCode.SEND_REPLY_MESSAGE: ResponseCode.SERVICE_NOT_AVAILABLE,
    RequestCode.SEND_REPLY_MESSAGE_V2: ResponseCode.SERVICE_NOT_AVAILABLE,
}


class BrokerRole:
    """Master or slave."""

    def __init__(self, name: str, *, is_slave: bool, metadata: Metadata, master: KnownMaster) -> None:
        self._name = name
        self._metadata = metadata
        self._master = master
        self.is_slave = is_slave
        self.has_master = False
        #: Whether it acts for its master: see `acting`.
        self.is_acting = False
        #: Called when the master of a slave does not answer any more.
        self.on_loss: Callable[[], None] = lambda: None
        #: Called when it answers again.
        self.on_return: Callable[[], None] = lambda: None
        metadata.set_role(is_slave, False)

    def refusal(self, code: int) -> Refused | None:
        """The reason why a slave does not serve a request; None where it does, or this is a master."""
        if not self.is_slave or code not in _OF_THE_MASTER:
            return None
        where = f" at {self._master.address}" if self._master.address else ""
        remark = f"{self._name} is a slave, which takes no changes; ask its master{where}"
        return Refused(_OF_THE_MASTER[RequestCode(code)], remark)

    def lead_no_more(self, successor: str | None) -> None:
        """Another broker leads from now on: messages are refused, and consumers are sent there."""
        self.is_slave = True
        self._master.address = successor
        self.master_answers(True)

    def master_answers(self, has_master: bool) -> None:
        """The master of a slave answers, or does not any more: consumers are sent back to it, or served."""
        self.has_master = has_master
        self._metadata.set_role(self.is_slave, has_master, is_acting=self.is_acting)
        if has_master:
            self.on_return()
        else:
            self.on_loss()

    def acts(self, is_acting: bool) -> None:
        """A slave begins to act for its master, or ends: consumers are served as by that, or sent back to it."""
        self.is_acting = is_acting
        self._metadata.set_role(self.is_slave, self.has_master, is_acting=is_acting)
        if not is_acting:
            self.on_return()

    def registered(self, answer: Registered) -> bool:
        """Take over where the master is; whether nothing else has to be known of a name server soon."""
        if not self.is_slave:
            return True
        self._master.told(answer)
        return self.has_master
