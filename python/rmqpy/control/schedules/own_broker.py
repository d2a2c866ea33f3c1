"""Own broker: requests of a broker to itself, over a connection. Threads: the event loop's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rmqpy.protocol.requests.messages import RecallMessage, SendMessage, StoredMessage
from rmqpy.remoting.client import Peer

SECONDS: Final = 5.0


class OwnBrokerPeer:
    """This broker, as its clients reach it."""

    def __init__(self, peer: Callable[[str], Peer], address: Callable[[], str]) -> None:
        self._peer = peer
        self._address = address

    async def send(self, ask: SendMessage) -> StoredMessage:
        """Store a message. Raises `RocketMQError`."""
        return await self._peer(self._address()).call(ask, timeout=SECONDS)

    async def recall(self, ask: RecallMessage) -> None:
        """Recall a timed message. Raises `RocketMQError`."""
        await self._peer(self._address()).call(ask, timeout=SECONDS)
