"""Context of one start: a value that every step is given, made anew when the broker starts again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rmqpy._native import Client, HandClock
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.addresses import Addresses
from rmqpy.control.identity import Identity
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.settings import LiveConfig
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.client import Peer


class Restart(Protocol):
    """Begins to start the broker again."""

    def __call__(self, cut: int | None = None) -> None:
        """`cut`: where its log is cut before that."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StartContext:
    """One start of a broker."""

    #: In force at the start, in the role that was decided; `settings` has what is in force later.
    config: BrokerConfig
    settings: LiveConfig
    #: As it was given: a slave that was promoted has that of a master in `config`.
    given_broker_id: int
    addresses: Addresses
    clock: Clock
    #: The native half's clock, where it is not the machine's.
    hand_clock: HandClock | None
    certificates: Certificates
    leadership: Leadership
    #: Of a slave: where its master is.
    master: KnownMaster
    #: Address of the master that this broker has just replaced.
    replaced: str | None
    #: The connections to name servers and other brokers.
    client: Client
    name_servers: Mapping[str, Peer]
    peer: Callable[[str], Peer]
    restart: Restart
    #: What this start has to undo, last step first.
    undo: contextlib.AsyncExitStack

    @property
    def is_slave(self) -> bool:
        """Whether the broker starts as a slave."""
        return self.config.replication.is_slave

    @property
    def folder(self) -> Path:
        """Where the tables are."""
        return Path(self.config.store.folder) / "config"

    def identity(self) -> Identity:
        """What others are told of this broker, now."""
        return self.addresses.identity(self.settings.now)
