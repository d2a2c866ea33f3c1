"""Plan of a load, which the native module reads by name. A value, for any thread."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from rmqpy._native import ClientTls


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load: requests of one kind, until `duration_s` measured seconds or `count` messages."""

    #: `produce` sends (codes 310 and 320), `consume` pulls (11). Two kinds have two responses for one request:
    #: `transact` sends half messages and commits each (310 and 37), `pop` pops and acknowledges (200050 and 200051).
    work: Literal["produce", "transact", "consume", "pop"]
    topic: str
    group: str
    #: Brokers: address, name, and queues with the readers' first offsets.
    targets: Sequence[tuple[str, str, Sequence[tuple[int, int]]]]
    _: KW_ONLY
    body_bytes: int = 128
    #: The size of a client batch, or of one pull.
    messages_each: int = 1
    #: The encoding of headers: binary, or JSON.
    binary: bool = False
    #: Connections are dealt to brokers and `threads`.
    connections: int = 1
    #: Requests in flight on each connection: a closed loop.
    window: int = 1
    threads: int = 1
    #: Messages due per second at fixed times, from which latencies are measured: an open loop.
    rate: float | None = None
    #: The seconds before the measurement.
    warm_up: float = 0.0
    duration_s: float = 10.0
    count: int | None = None
    #: Sent messages are due within the second from then on.
    due_ms: int | None = None
    #: The load fails after this many seconds without a response.
    timeout: float = 5.0
    #: Processes whose CPU seconds are reported.
    pids: Sequence[int] = ()
    #: Access key, secret key and token, which sign requests.
    credentials: tuple[str, str, str | None] | None = None
    tls: ClientTls | None = None
