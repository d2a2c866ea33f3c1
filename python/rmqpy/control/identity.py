"""Identity of the broker, as it tells name servers and other brokers. A value."""

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
    #: 0 of a master.
    broker_id: int = MASTER_ID
    #: None where zones are not told apart.
    zone: str | None = None
    #: Whether a slave may act for its master.
    may_act: bool = False
    #: After so much silence it is gone, in ms; None for what name servers take for long.
    silence_ms: int | None = None
