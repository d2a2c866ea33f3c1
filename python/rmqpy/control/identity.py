"""Identity of the broker, as name servers and other brokers see it. A value."""

from __future__ import annotations

from dataclasses import dataclass

from rmqpy.protocol.requests.routes import MASTER_ID


@dataclass(frozen=True, slots=True)
class Identity:
    """Names and addresses of the broker."""

    cluster: str
    broker: str
    address: str
    replica_address: str
    #: 0 for a master.
    broker_id: int = MASTER_ID
    #: The zone, or `None` if zones are not distinguished.
    zone: str | None = None
    #: True if a slave may act for its master.
    may_act: bool = False
    #: The silence in ms after which name servers drop it; `None` for their default.
    silence_ms: int | None = None
