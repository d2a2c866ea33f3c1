"""Running broker: the parts of one start that an election reads and changes. A value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rmqpy._native import Metadata, Server, Store
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.control.tables.electable import ElectableReplicas
from rmqpy.remoting.client import Peer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningBroker:
    """The parts of a broker between start and stop."""

    #: The epoch that it leads; `None` if it follows.
    led_epoch: int | None
    #: The id with which a slave was started.
    broker_id: int
    stream: LogStream
    server: Server
    metadata: Metadata
    store: Store
    #: Of the topics and the groups of a master.
    electable: tuple[ElectableReplicas, ...]
    role: BrokerRole
    master: KnownMaster
    peer: Callable[[str], Peer]
    #: Registers at the name servers; called once.
    register: Callable[[], Awaitable[None]]
    #: Ends the registrations without unregistering.
    abandon: Callable[[], Awaitable[None]]
    #: Copies a slave's progress once more.
    finish_copies: Callable[[], Awaitable[None]] | None
