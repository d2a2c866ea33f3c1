"""Log position up to which copied progress is valid: the end of the sender's log after it sent the progress.

Progress refers to messages. A broker that applied it before its own log has them would skip the messages that take
their place once it leads. Threads: the event loop's.
"""

from __future__ import annotations

from typing import Final

from rmqpy.errors import DecodeError
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.remoting.client import Peer

ANSWER_SECONDS: Final = 10.0


async def log_end_of(broker: Peer) -> int:
    """Return the end of another broker's log. Raises `RocketMQError`."""
    info = await broker.call(GetBrokerRuntimeInfo(), timeout=ANSWER_SECONDS)
    end = info.table.get("commitLogMaxOffset", "")
    if not end.isdecimal():
        raise DecodeError(f"{broker.address} did not return the end of its log: {end[:40]!r}")
    return int(end)
