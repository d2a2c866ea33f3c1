"""Promise copy: the promise of the master's acknowledgements, kept for a succession by this slave.

An Apache master is queried in the same way. Threads: the event loop's.
"""

from __future__ import annotations

from typing import Final

from rmqpy.config import properties
from rmqpy.config.replication import SLAVE
from rmqpy.control.replicas.leadership import Leadership, MasterPromise
from rmqpy.errors import DecodeError
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from rmqpy.remoting.client import Peer

#: The interval; a master changes its promise only by a restart.
SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 10.0


class PromiseCopy:
    """The copy of three settings."""

    what = "promises"

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    async def copy(self, master: Peer) -> float:
        """Query the settings. Raises `RocketMQError`."""
        answer = await master.call(GetBrokerConfig(), timeout=ANSWER_SECONDS)
        try:
            settings = properties.parse(answer.body)
            promise = MasterPromise(
                role=settings.get("brokerRole", SLAVE),
                copies_wanted=int(settings.get("inSyncReplicas", "0")),
                copies_min=int(settings.get("minInSyncReplicas", "1")),
            )
        except (properties.PropertiesError, ValueError) as error:
            raise DecodeError(
                f"{master.address} did not return what its acknowledgements promise: {error}"
            ) from None
        # A replaced master is a slave now.
        if promise.role != SLAVE:
            await self._leadership.note_master(master.address, promise)
        return SECONDS
