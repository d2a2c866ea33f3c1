"""Position in the log up to which copied progress holds: where the log of the broker that told it ended after that.

Progress speaks of messages. Who takes it over before its own log has them would pass over what comes to their places,
once it leads. Threads: the event loop's.
"""

from __future__ import annotations

from typing import Final

from rmqpy.errors import DecodeError
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.remoting.client import Peer

ANSWER_SECONDS: Final = 10.0


async def log_end_of(broker: Peer) -> int:
    """Where the log of another broker ends now. Raises `RocketMQError`."""
    info = await broker.call(GetBrokerRuntimeInfo(), timeout=ANSWER_SECONDS)
    end = info.table.get("commitLogMaxOffset", "")
    if not end.isdecimal():
        raise DecodeError(f"{broker.address} does not say where its log ends: {end[:40]!r}")
    return int(end)
