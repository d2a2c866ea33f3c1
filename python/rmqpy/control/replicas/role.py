"""Role of the broker: the requests a slave refuses in addition to the data plane. Threads: the event loop's."""

from __future__ import annotations

from typing import Final

from rmqpy._native import Metadata
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.requests.registration import Registered
from rmqpy.remoting.server import Refused

#: Requests that only a master serves, with the code of the refusal: Apache's, if it has one.
_OF_THE_MASTER: Final = {
    **dict.fromkeys(
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            RequestCode.DELETE_TOPIC_IN_BROKER,
            # A new topic may not be copied yet.
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
    """The current role: master or slave."""

    def __init__(self, name: str, *, is_slave: bool, metadata: Metadata, master: KnownMaster) -> None:
        self._name = name
        self._metadata = metadata
        self._master = master
        self.is_slave = is_slave
        self.has_master = False
        #: True while this slave acts for its master: see `acting`.
        self.is_acting = False
        metadata.set_role(is_slave, False)

    def refusal(self, code: int) -> Refused | None:
        """Return why a slave does not serve a request; `None` if it does, or on a master."""
        if not self.is_slave or code not in _OF_THE_MASTER:
            return None
        where = f" at {self._master.address}" if self._master.address else ""
        remark = f"{self._name} is a slave, which takes no changes; ask its master{where}"
        return Refused(_OF_THE_MASTER[RequestCode(code)], remark)

    def lead_no_more(self, successor: str | None) -> None:
        """Stop leading: refuse messages, and redirect consumers to the successor."""
        self.is_slave = True
        self._master.address = successor
        self.master_answers(True)

    def master_answers(self, has_master: bool) -> None:
        """Serve consumers while the master of a slave does not answer, and redirect them to it again when it does."""
        self.has_master = has_master
        self._metadata.set_role(self.is_slave, has_master, is_acting=self.is_acting)

    def acts(self, is_acting: bool) -> None:
        """Serve consumers like the master while acting, and redirect them to the master afterwards."""
        self.is_acting = is_acting
        self._metadata.set_role(self.is_slave, self.has_master, is_acting=is_acting)

    def registered(self, answer: Registered) -> bool:
        """Take the master's address from a registration's reply; return whether the reply suffices for now."""
        if not self.is_slave:
            return True
        self._master.learn(answer)
        return self.has_master
